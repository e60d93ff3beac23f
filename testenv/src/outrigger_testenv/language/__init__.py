"""A small language model, and a server of another project that serves it with OpenAI's API."""
