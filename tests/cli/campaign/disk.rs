//! A disk of some MiB, of which a case leaves as little free as it likes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory; it is unmounted when the campaign ends.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
}

/// What fills the disk.
const BALLAST: &str = "ballast";

impl SmallDisk {
    /// All of its bytes.
    pub const BYTES: usize = 32 << 20;

    /// Mounts one at `folder`; `None` where this process may not.
    pub fn mount(folder: &Path) -> Option<Self> {
        fs::create_dir_all(folder).unwrap();
        let size = format!("size={},mode=0755", Self::BYTES);
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "octorec-campaign"]).arg(folder).output();
        mounted.ok().filter(|done| done.status.success()).map(|_| Self { folder: folder.to_owned() })
    }

    /// Where it is mounted.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Leaves about this many bytes free of what is free now.
    pub fn leave(&self, bytes: usize) {
        let mut file = fs::File::create(self.path(BALLAST)).unwrap();
        let page = [1; 4096];
        // Full before it can be told how much is free: then back by what is to be left.
        while file.write_all(&page).is_ok() {}
        let full = file.metadata().unwrap().len();
        file.set_len(full.saturating_sub(bytes as u64)).unwrap();
    }

    /// Frees what [`SmallDisk::leave`] took.
    pub fn free(&self) {
        let _ = fs::remove_file(self.path(BALLAST));
    }

    /// Removes everything.
    pub fn clear(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.clear();
        let _ = Command::new("umount").arg(&self.folder).output();
    }
}
