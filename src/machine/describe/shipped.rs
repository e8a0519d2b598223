//! The machines that come with octorec: each is one file in `topology/` and one line here.

/// Names and descriptions.
pub const SHIPPED: [(&str, &str); 8] = [
    ("twisted-hypercube-8", include_str!("../../../topology/twisted-hypercube-8.toml")),
    ("hypercube-8", include_str!("../../../topology/hypercube-8.toml")),
    ("ring-4", include_str!("../../../topology/ring-4.toml")),
    ("full-4", include_str!("../../../topology/full-4.toml")),
    ("two-socket", include_str!("../../../topology/two-socket.toml")),
    ("epyc-nps4-2s", include_str!("../../../topology/epyc-nps4-2s.toml")),
    ("fat-tree-64", include_str!("../../../topology/fat-tree-64.toml")),
    ("this-small-box", include_str!("../../../topology/this-small-box.toml")),
];
