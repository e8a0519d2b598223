//! Where numbers live: zeroed, aligned buffers, on huge pages when they are large.

mod buffer;
mod system;

pub use buffer::Buffer;
pub use system::available_bytes;
