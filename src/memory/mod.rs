//! Where numbers live: zeroed, aligned buffers, on huge pages when they are large.

mod buffer;
mod file;
mod system;

pub use buffer::Buffer;
pub use file::FileBytes;
pub use system::available_bytes;
