//! Whether the kernel gives programs huge pages.

use std::fs;

/// A warning where the kernel gives nobody transparent huge pages, though it takes the advice to use some.
pub fn no_huge_pages() -> Option<String> {
    /// Where it says so.
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let is_never = fs::read_to_string(ENABLED).is_ok_and(|text| text.contains("[never]"));
    is_never.then(|| {
        format!(
            "this system has no huge pages for programs ({ENABLED} is never): random rows of large tables take two to three times \
             as long; as root, `echo madvise > {ENABLED}` turns them on"
        )
    })
}
