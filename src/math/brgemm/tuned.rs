//! Plans that were measured on this machine: they take the place of the model's for the shapes that they know.
//!
//! One table a process: a plan changes when a sum's terms are added, never their order, so the same bits come out
//! whichever is installed, and nothing but speed depends on this state.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, RwLock};

use super::plan::{Plan, Shape};
use crate::base::Unpoisoned;

/// Of each shape its plan; nothing of one that was asked for and has none.
static INSTALLED: LazyLock<RwLock<HashMap<Shape, Option<Plan>>>> = LazyLock::new(RwLock::default);

/// Whether there are any: passes of all threads read this line, and only where there are some the lock's, which readers
/// write.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether a pass had one of them. Relaxed, as the other one: neither carries data.
static USED: AtomicBool = AtomicBool::new(false);

/// Lets passes use these plans from now on, and the model's for all other shapes; they replace what was installed.
pub fn install(plans: HashMap<Shape, Plan>) {
    let mut installed = INSTALLED.write().unpoisoned();
    ANY.store(!plans.is_empty(), Ordering::Relaxed);
    USED.store(false, Ordering::Relaxed);
    *installed = plans.into_iter().map(|(shape, plan)| (shape, Some(plan))).collect();
}

/// The shapes of the passes since plans were installed, where none had one of these; nothing where one had, there was
/// no pass, or none are installed.
#[must_use]
pub fn unmatched() -> Vec<Shape> {
    if !ANY.load(Ordering::Relaxed) || USED.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let known = INSTALLED.read().unpoisoned();
    known.iter().filter(|(_, plan)| plan.is_none()).map(|(shape, _)| *shape).collect()
}

/// The plan that was installed for a shape.
pub(super) fn installed(shape: Shape) -> Option<Plan> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let known = INSTALLED.read().unpoisoned().get(&shape).copied();
    // Each shape is written once.
    let plan = known.unwrap_or_else(|| *INSTALLED.write().unpoisoned().entry(shape).or_default());
    if plan.is_some() && !USED.load(Ordering::Relaxed) {
        USED.store(true, Ordering::Relaxed);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_plans_take_the_model_s_place_for_their_shape() {
        // No other test has this shape.
        let shape = Shape { rows: 77, grain: 1, columns: 4097, steps: 555, whole: false, threads: 2 };
        let model = Plan::new(shape);
        let other = Plan::candidates(shape)[1];
        assert_ne!(model, other);
        install(HashMap::from([(shape, other)]));
        let narrow = Shape { columns: 4096, ..shape };
        assert!(Plan::new(narrow) == Plan::modelled(narrow) && unmatched().contains(&narrow));
        assert_eq!(Plan::new(shape), other);
        assert!(unmatched().is_empty(), "one is used");
        assert_eq!(Plan::new(Shape { rows: 78, ..shape }), Plan::modelled(Shape { rows: 78, ..shape }));
        install(HashMap::new());
        assert_eq!(Plan::new(shape), model);
    }
}
