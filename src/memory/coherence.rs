//! File systems on which several processes may write parts of one file, those of different machines, too.
//!
//! Parts of a file meet within a page. A client of NFS that writes into the middle of a page, behind the end of the
//! file that it knows of, fills the rest of the page with zeros and may send all of it: where that comes after what
//! another client has written to the same page, zeros take its place. Clients that keep pages without asking each
//! other, as those of SMB and many below FUSE, may lose bytes in such ways, too. So parts are written only where it is
//! known that nothing of this kind happens: where one kernel has all pages of a file, and where clients ask each other
//! for them.
//!
//! Of Lustre's clients locks go with all that they keep ("complete cache coherence", wiki.lustre.org, FAQ), as those of
//! GPFS, GFS2 and OCFS2 do; those of CephFS keep nothing of a file that several write ("strong cache coherency across
//! clients", docs.ceph.com, Differences from POSIX, but for mapped pages, and parts are not written by maps). BeeGFS
//! (0x1983_0326) is left out: its clients may keep pages (`tuneFileCacheType = native`), and nothing in what
//! doc.beegfs.io says of that (Client Side Caching Modes) is about asking each other.

use std::path::Path;

/// The types (`f_type` of statfs(2)) of file systems that one kernel has to itself.
const OF_ONE_HOST: [u64; 9] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0x2FC1_2FC1, // ZFS
    0xF2F5_2010, // F2FS
    0xCA45_1A4E, // bcachefs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlayfs, of containers
];

/// Those of clusters whose clients have locks on what they keep, or keep nothing of a file that several write.
const OF_CLUSTERS: [u64; 5] = [
    0x0BD0_0BD0, // Lustre
    0x4750_4653, // GPFS
    0x0116_1970, // GFS2
    0x7461_636F, // OCFS2
    0x00C3_6400, // CephFS, by the kernel's client
];

/// Whether it is known that what a process writes to a file changes no bytes beside it, whoever else writes those.
#[must_use]
pub fn is_coherent(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(is_coherent_type))
}

fn is_coherent_type(number: u64) -> bool {
    OF_ONE_HOST.contains(&number) || OF_CLUSTERS.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_only_where_pages_are_known_to_be_nobodys_own() {
        // As linux/magic.h has them, in decimal digits.
        let [ext4, tmpfs, overlay] = [61_267, 16_914_836, 2_035_054_128];
        let [lustre, gpfs, ceph] = [198_183_888, 1_196_443_219, 12_805_120];
        assert!([ext4, tmpfs, overlay, lustre, gpfs, ceph].into_iter().all(is_coherent_type));
        let [nfs, smb, cifs, afs, fuse] = [0x6969, 0xFE53_4D42, 0xFF53_4D42, 0x5346_414F, 0x6573_5546];
        let [plan9, beegfs, unknown] = [0x0102_1997, 0x1983_0326, 0];
        assert!(![nfs, smb, cifs, afs, fuse, plan9, beegfs, unknown].into_iter().any(is_coherent_type));
    }

    #[test]
    fn what_is_not_there_or_of_another_file_system_is_not_coherent() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_coherent(&folder.path().join("none")) && !is_coherent(Path::new("/proc/self/status")));
    }
}
