//! A topic of the page's stream: its state and its changes as events.

use bytes::Bytes;
use serde::Serialize;

/// A topic: the full state for new viewers, and the last change for those that have received the
/// revision before.
#[derive(Debug, Clone, Default)]
pub struct Topic {
    /// The revision, which grows with every change; 0 before the first.
    revision: u64,
    /// The event with the full state.
    whole: Bytes,
    /// The event with the change from the previous revision to this one.
    step: Bytes,
}

impl Topic {
    /// True if nothing has been published yet.
    pub fn is_new(&self) -> bool {
        self.revision == 0
    }

    /// Makes the next revision. New viewers receive `whole` as the event `name`; viewers that have
    /// the previous revision receive `step` as the event `name-step`.
    pub fn next(&self, name: &str, whole: &impl Serialize, step: Option<&impl Serialize>) -> Self {
        let whole = event(name, whole);
        let step = step.map(|step| event(&format!("{name}-step"), step));
        let step = step.unwrap_or_else(|| whole.clone());
        Self { revision: self.revision + 1, whole, step }
    }

    /// The event for a viewer that has received revision `sent`, which is then updated; `None` if
    /// the viewer is up to date.
    pub fn event_after(&self, sent: &mut u64) -> Option<Bytes> {
        let last = std::mem::replace(sent, self.revision);
        match self.revision - last.min(self.revision) {
            0 => None,
            1 if last > 0 => Some(self.step.clone()),
            _ => Some(self.whole.clone()),
        }
    }
}

/// One event of a `text/event-stream`.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    // JSON escapes line breaks, so it is one line of data.
    let data = serde_json::to_string(data).expect("numbers, texts, and names of fields");
    format!("event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_missed_a_step_gets_the_whole_topic() {
        let first = Topic::default().next("x", &[1], None::<&u8>);
        let second = first.next("x", &[1, 2], Some(&2));
        let third = second.next("x", &[1, 2, 3], Some(&3));
        let received = |topic: &Topic, sent: u64| {
            let bytes = topic.event_after(&mut sent.clone())?;
            Some(String::from_utf8(bytes.to_vec()).unwrap())
        };
        assert_eq!(received(&third, 3), None);
        assert_eq!(received(&third, 2).unwrap(), "event: x-step\ndata: 3\n\n");
        for behind in [0, 1] {
            assert_eq!(received(&third, behind).unwrap(), "event: x\ndata: [1,2,3]\n\n");
        }
        assert_eq!(received(&first, 0).unwrap(), "event: x\ndata: [1]\n\n");
    }

    #[test]
    fn a_line_break_in_a_text_ends_no_event() {
        let topic = Topic::default().next("x", &"a\n\ndata: b\r", None::<&u8>);
        let bytes = topic.event_after(&mut 0).unwrap();
        assert_eq!(
            &bytes[..],
            br#"event: x
data: "a\n\ndata: b\r"

"#
        );
    }
}
