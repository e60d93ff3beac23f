"""Files of tree models, with the results that their own libraries give."""
