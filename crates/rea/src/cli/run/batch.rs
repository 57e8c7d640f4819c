//! What a batch is: the same content, or the same name, is the same batch, today and after a crash.

use ax::JobId;
use sha2::{Digest, Sha256};

/// The identity of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch(JobId);

impl Batch {
    /// The batch of this name.
    pub(super) fn named(name: &str) -> Batch {
        Batch::of(&["name", name], &[])
    }

    /// The batch of this content; with bare lines the task belongs to it.
    pub(super) fn of_content(task: Option<&str>, digest: &[u8; 32]) -> Batch {
        Batch::of(&["content", task.unwrap_or_default()], digest)
    }

    /// A batch that is no other's: a pipe has no content that is known when it begins.
    pub(super) fn once(random: &[u8; 32]) -> Batch {
        Batch::of(&["once"], random)
    }

    fn of(words: &[&str], more: &[u8]) -> Batch {
        let mut digest = Sha256::new();
        for word in words {
            digest.update(word.as_bytes());
            digest.update([0]);
        }
        digest.update(more);
        let mut id = [0; 16];
        id.copy_from_slice(&digest.finalize()[..16]);
        // A UUID of version 8: made of what its maker likes (RFC 9562).
        id[6] = id[6] & 0x0F | 0x80;
        id[8] = id[8] & 0x3F | 0x80;
        Batch(JobId(id))
    }

    /// The batch's id: the `root_id` of its jobs.
    pub(super) fn id(&self) -> JobId {
        self.0
    }

    /// The id of the flow that a line asks for.
    pub(super) fn flow(&self, line: u64) -> JobId {
        Batch::of(&["flow", &line.to_string()], &self.0.0).0
    }

    /// The idempotency key of a line.
    pub(super) fn key(&self, line: u64) -> String {
        format!("run:{}:{line}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_or_name_is_the_same_batch() {
        let content = Batch::of_content(None, &[1; 32]);
        assert_eq!(content, Batch::of_content(None, &[1; 32]));
        for other in [
            Batch::of_content(Some("m:f"), &[1; 32]),
            Batch::of_content(None, &[2; 32]),
            Batch::named("m:f"),
            Batch::once(&[1; 32]),
        ] {
            assert_ne!(content, other);
        }
        let text = content.id().to_string();
        assert!(text[14..].starts_with('8') && text.len() == 36, "{text}");
        assert!(content.key(u64::MAX).len() <= 200);
    }
}
