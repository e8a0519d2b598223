//! Samples of a split as the files have them.

use std::ops::Range;

use super::{Files, Share, cut, limit_rows, scan};
use crate::base::Result;
use crate::data::{Split, Stored, TakeStored};

impl Files {
    /// As [`each_stored`](crate::data::Source::each_stored).
    pub(super) fn hand_stored(&self, split: Split, range: Range<u64>, take: &mut TakeStored<'_>) -> Result<()> {
        let (description, blanks) = (self.scaled()?, &self.blanks[..]);
        let (_, from) = cut(self.shares(split), range.start);
        let (within, _) = cut(&from, range.end - range.start);
        for Share { member, first, rows } in within {
            scan(&*self.members[member].table, first, first + rows, |samples| {
                if self.cap == 0 {
                    return take(Stored { samples, description, blanks });
                }
                let mut limited = samples.clone();
                limited.lookups.iter_mut().for_each(|lookups| limit_rows(&mut lookups.rows, self.cap));
                take(Stored { samples: &limited, description, blanks })
            })?;
        }
        Ok(())
    }
}
