//! Panics that are answers: of libraries that panic where they should return an error.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

thread_local! {
    /// Whether this thread's panics are answers now.
    static ANSWERS: Cell<bool> = const { Cell::new(false) };
}

/// What a panic says.
#[must_use]
pub fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// Runs what may panic because its input is bad. Whatever it was changing must not be used after an error.
///
/// # Errors
/// What the panic said.
pub fn answered<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = ANSWERS.replace(true);
    // Unwind safety: the caller's promise.
    let answer = catch_unwind(AssertUnwindSafe(work));
    ANSWERS.set(before);
    answer.map_err(|panic| words(&*panic).to_owned())
}

/// From now on this process prints no panic that is an answer; of every other `first` hears the words before they are
/// printed.
pub fn watch(first: fn(&str)) {
    let usual = take_hook();
    set_hook(Box::new(move |panic| {
        if !ANSWERS.get() {
            first(words(panic.payload()));
            usual(panic);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_answers_on_their_thread_alone() {
        assert_eq!(answered(|| 7), Ok(7));
        let index = [1, 2, 3].len();
        let answer = answered(|| {
            assert!(ANSWERS.get() && !std::thread::spawn(|| ANSWERS.get()).join().unwrap());
            let nested = answered(|| panic!("at once"));
            assert_eq!(nested, Err::<(), _>("at once".to_owned()));
            assert!(ANSWERS.get(), "as around it");
            [1, 2, 3][index]
        });
        assert!(answer.unwrap_err().contains("the index is 3"));
        assert!(!ANSWERS.get());
    }
}
