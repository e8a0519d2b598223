//! Where numbers live: zeroed, aligned buffers, and one arena a rank that is bound to its node and verified.

mod arena;
mod buffer;
mod capacity;
mod coherence;
mod file;
mod groups;
mod heap;
mod homes;
mod huge;
mod lock;
mod lost;
mod own;
mod partial;
mod plan;
mod stream;
mod system;
mod whole;

pub use arena::{Arena, Binding};
pub use buffer::{Buffer, Supply, recycled};
pub use capacity::{Demand, NodeMemory, check_capacity, check_host};
pub use coherence::is_coherent;
pub use file::{Access, FileBytes, FileCursor, FileMap, forget_cached, listed, natural};
pub use groups::{ControlGroup, control_groups, groups_below};
pub use heap::{Heap, exhausted, watch_starts_of_threads};
pub use homes::Homes;
pub use lock::FolderLock;
pub use own::{append_own, refuse_foreign};
pub use partial::{partial_of, whole_name};
pub use plan::Plan;
pub use stream::{create_file, is_stream};
pub use system::{available_bytes, raise_open_files};
pub use whole::{FilePart, Flush, WholeFile, file_id, make_folder, same_file, write_file};
