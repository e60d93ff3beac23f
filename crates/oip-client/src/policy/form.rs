//! The form of messages that a host takes.

/// A form of messages, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// gRPC with raw contents.
    Grpc,
    /// HTTP with the binary tensor extension.
    Binary,
    /// HTTP with tensors in JSON.
    Json,
}

/// The forms that a host takes, as found by trying: servers announce forms that they refuse, and
/// accept forms that they do not announce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forms {
    form: Form,
    is_proven: bool,
}

impl Forms {
    /// A host that was not tried yet. A host behind a path prefix is not tried with gRPC, whose
    /// paths have no prefix.
    pub fn untried(has_prefix: bool) -> Self {
        Self { form: if has_prefix { Form::Binary } else { Form::Grpc }, is_proven: false }
    }

    /// The form to send.
    pub fn form(&self) -> Form {
        self.form
    }

    /// True if a message of this form was answered with success.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Records that a message of this form was answered, the first time for good.
    pub fn worked(&mut self, form: Form) {
        if !self.is_proven {
            *self = Self { form, is_proven: true };
        }
    }

    /// The form to send a message in that was refused in `form`, unless one is proven.
    pub fn fallback(&self, form: Form) -> Option<Form> {
        match form {
            _ if self.is_proven => None,
            Form::Grpc => Some(Form::Binary),
            Form::Binary => Some(Form::Json),
            Form::Json => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_20_forms_are_tried_in_order_and_the_first_that_works_is_kept() {
        let mut forms = Forms::untried(false);
        assert_eq!((forms.form(), forms.fallback(Form::Grpc)), (Form::Grpc, Some(Form::Binary)));
        assert_eq!(
            (forms.fallback(Form::Binary), forms.fallback(Form::Json)),
            (Some(Form::Json), None)
        );
        forms.worked(Form::Json);
        assert_eq!((forms.form(), forms.is_proven()), (Form::Json, true));
        forms.worked(Form::Binary);
        assert_eq!((forms.form(), forms.fallback(Form::Json)), (Form::Json, None));
    }

    #[test]
    fn a_form_that_worked_has_no_fallback() {
        let mut forms = Forms::untried(true);
        assert_eq!(forms.form(), Form::Binary);
        forms.worked(Form::Binary);
        assert_eq!(forms.fallback(Form::Binary), None, "a later failure has another cause");
    }
}
