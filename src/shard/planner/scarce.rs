//! Where others have taken memory of this machine. Plans go by what memories are in all, so that one machine gives one
//! plan; where that much is not to be had now, by what is.

use super::{Options, Plan, plan};
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::machine::site::Pool;
use crate::shard::cost::Model;

/// As [`plan`]; where some memory has less left than it is given, by what all have left. `told` hears that, and where
/// there is no such division: then the plan stays.
///
/// # Errors
/// As [`plan`].
///
/// # Panics
/// As [`plan`].
pub fn plan_by_free(model: &Model<'_>, options: &Options, told: &mut Vec<String>) -> Result<Plan> {
    let found = plan(model, options)?;
    let tally = model.tally(&found.sharding);
    let lacks = |(at, pool): &(usize, &Pool)| {
        pool.free.is_some_and(|free| model.wanted(&tally, *at).unsigned_abs() > free.saturating_sub(pool.reserve))
    };
    let scarce: Vec<String> = model
        .site
        .pools
        .iter()
        .enumerate()
        .filter(lacks)
        .map(|(_, pool)| {
            let [free, all] = [pool.free.unwrap_or(pool.bytes), pool.bytes].map(Bytes);
            format!("{} has {free} of {all} free", pool.name())
        })
        .collect();
    if scarce.is_empty() || model.ranks() == 1 {
        return Ok(found);
    }
    let scarce = scarce.join(", ");
    let site = model.site.with_free_memory();
    match plan(&Model::new(model.workload, &site), options) {
        Ok(by_free) => {
            told.push(format!("plan: {scarce}: tables are divided by what is free now"));
            Ok(by_free)
        }
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(_) => {
            told.push(format!(
                "warning: {scarce}: no division of the tables fits what is free now; let others end first"
            ));
            Ok(found)
        }
    }
}
