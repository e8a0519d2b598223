//! What another machine gives at one stage after another: a head with the stage's name and a length, and the pieces of
//! a body.

use super::END;
use crate::base::{Error, Result};
use crate::sync::Line;

/// Words of a stage's name.
const NAME: usize = 14;

/// What comes from one machine. It lasts from one gathering to the next, so that whoever has given up in the midst of
/// a body does not take the rest of it for a head.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Where the machine is; nothing when what it gave there was taken.
    stage: Option<[u32; NAME]>,
    /// The body's length.
    due: usize,
    body: Vec<u8>,
}

impl Incoming {
    /// A message has come.
    pub fn take(&mut self, message: &[u8]) {
        // A machine that fails ends in the midst of a body, too.
        let ends = message.len() == Line::BYTES && message[8..] == bytemuck::bytes_of(&words_of(END))[..];
        if self.is_whole() || ends {
            let words: [u32; 2 + NAME] = bytemuck::pod_read_unaligned(message);
            self.stage = Some(std::array::from_fn(|word| words[2 + word]));
            self.due = words[0] as usize | (words[1] as usize) << 32;
            self.body.clear();
        } else {
            self.body.extend_from_slice(message);
        }
    }

    /// What the machine has given at this stage, once that is whole. Who ends does not care where the others were
    /// before they end, too.
    ///
    /// # Errors
    /// When the machine, which has this number, has ended or is at another stage.
    pub fn given(&mut self, stage: &'static str, machine: usize) -> Result<Option<Vec<u8>>> {
        let failed = |reason: String| Err(Error::Mpi { action: stage.to_owned(), reason });
        let Some(theirs) = self.stage else { return Ok(None) };
        if theirs == words_of(stage) {
            if !self.is_whole() {
                return Ok(None);
            }
            (self.stage, self.due) = (None, 0);
            return Ok(Some(std::mem::take(&mut self.body)));
        }
        if theirs == words_of(END) {
            if !self.is_whole() {
                return Ok(None);
            }
            let why = String::from_utf8_lossy(&self.body);
            // Nothing is wrong with a job of which one machine has heard first that it is to stop.
            return match why == Error::Interrupted.to_string() {
                true => Err(Error::Interrupted),
                false => failed(format!("machine {machine} has failed: {why}")),
            };
        }
        if stage == END {
            return Ok(None);
        }
        let theirs = String::from_utf8_lossy(bytemuck::bytes_of(&theirs)).trim_end_matches('\0').to_owned();
        failed(format!("machine {machine} is at another place: {theirs}"))
    }

    fn is_whole(&self) -> bool {
        self.body.len() == self.due
    }
}

/// The head before a body of so many bytes.
pub(super) fn head_of(stage: &str, bytes: usize) -> Line {
    let mut words = [0; 2 + NAME];
    (words[0], words[1]) = (bytes as u32, (bytes as u64 >> 32) as u32);
    words[2..].copy_from_slice(&words_of(stage));
    Line::from(words)
}

/// The first letters of a stage's name.
fn words_of(stage: &str) -> [u32; NAME] {
    let mut bytes = [0u8; 4 * NAME];
    let len = stage.len().min(bytes.len());
    bytes[..len].copy_from_slice(&stage.as_bytes()[..len]);
    bytemuck::cast(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that has given this much of a body at a stage, before it ended.
    fn having(stage: &str, bytes: usize, given: &[u8], end: &str) -> Incoming {
        let mut machine = Incoming::default();
        let mut take = |stage: &str, bytes: usize, body: &[u8]| {
            machine.take(bytemuck::bytes_of(&head_of(stage, bytes)));
            body.chunks(3).for_each(|piece| machine.take(piece));
        };
        take(stage, bytes, given);
        take(END, end.len(), end.as_bytes());
        machine
    }

    #[test]
    fn a_machine_that_has_ended_is_heard_wherever_others_are() {
        for (bytes, given) in [(0, &b""[..]), (5, b"whole"), (500, b"a part")] {
            let mut machine = having("read the data", bytes, given, "the disk is full");
            // A second time, too: it has ended for good.
            for _ in 0..2 {
                let error = machine.given("load a checkpoint", 1).unwrap_err().to_string();
                assert!(error.ends_with("cannot load a checkpoint: machine 1 has failed: the disk is full"), "{error}");
            }
            assert_eq!(machine.given(END, 1).unwrap().as_deref(), Some(&b"the disk is full"[..]));
        }
        let mut machine = having("read the data", 0, b"", &Error::Interrupted.to_string());
        assert!(matches!(machine.given("load a checkpoint", 1), Err(Error::Interrupted)));
    }

    #[test]
    fn what_is_given_at_one_stage_is_taken_when_it_is_whole() {
        let mut machine = Incoming::default();
        for body in [&b"four"[..], b"", b"more"] {
            assert!(machine.given("count", 1).unwrap().is_none());
            machine.take(bytemuck::bytes_of(&head_of("count", body.len())));
            for piece in body.chunks(2) {
                assert!(machine.given("count", 1).unwrap().is_none());
                machine.take(piece);
            }
            assert_eq!(machine.given("count", 1).unwrap().as_deref(), Some(body));
        }
        machine.take(bytemuck::bytes_of(&head_of("count", 4)));
        let error = machine.given("sum", 1).unwrap_err().to_string();
        assert!(error.contains("machine 1 is at another place: count"), "{error}");
        machine.take(b"four");
        assert!(machine.given(END, 1).unwrap().is_none());
    }
}
