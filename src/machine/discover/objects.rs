//! hwloc's objects in octorec's words: a NUMA node with its cores, caches and permissions.

use std::collections::BTreeMap;

use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;

use crate::base::{NodeId, PuId};
use crate::machine::describe::{Core, L3Group, Node, Pu};

/// The operating system's number; hwloc has one for every NUMA node and processing unit.
fn os_index(object: &TopologyObject) -> u32 {
    object.os_index().and_then(|index| u32::try_from(index).ok()).unwrap_or(0)
}

/// How many hardware threads a synthetic description asks for: the product of its levels' counts, as C reads numbers.
/// What is no number is for hwloc to judge.
pub fn synthetic_size(description: &str) -> u64 {
    let (mut levels, mut depth) = (String::new(), 0u32);
    // Attributes of a level stand in parentheses, of memory beside the levels in brackets.
    for sign in description.chars() {
        match sign {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            sign if depth == 0 => levels.push(sign),
            _ => {}
        }
    }
    let count = |level: &str| as_in_c(level.rsplit(':').next().unwrap_or_default()).unwrap_or(1);
    levels.split_whitespace().map(count).fold(1, u64::saturating_mul)
}

/// The largest number that a synthetic description gives a hardware thread or a node (`indexes=0,2,1,3`); other
/// attributes may follow behind a blank.
pub fn largest_index(description: &str) -> u64 {
    let description = description.to_ascii_lowercase();
    let lists = description.split("indexes=").skip(1).filter_map(|rest| rest.split([' ', ')']).next());
    lists.flat_map(|list| list.split(|c: char| !c.is_ascii_alphanumeric())).filter_map(as_in_c).max().unwrap_or(0)
}

/// The number with which a text begins, as C reads it; digits that fit no number are a very large one.
fn as_in_c(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (radix, digits) = match text.strip_prefix("0x") {
        Some(digits) => (16, digits),
        None if text.starts_with('0') => (8, &text[..]),
        None => (10, &text[..]),
    };
    let digits = &digits[..digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len())];
    (!digits.is_empty()).then(|| u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}

pub fn node_id(object: &TopologyObject) -> NodeId {
    NodeId(os_index(object))
}

pub fn pu_id(object: &TopologyObject) -> PuId {
    PuId(os_index(object))
}

/// A NUMA node; `position` stands in for the package where hwloc has none. It has no cores if its cpuset is empty.
pub fn node(topology: &Topology, object: &TopologyObject, position: u32) -> Node {
    let id = node_id(object);
    let allowed = topology.allowed_cpuset();
    let mut cores = BTreeMap::<(usize, usize), Vec<&TopologyObject>>::new();
    if let Some(cpuset) = object.cpuset() {
        for pu in topology.pus_from_cpuset(cpuset) {
            // Cores of one last-level cache side by side, in hwloc's logical order; without cores every PU is one.
            let core = pu.first_ancestor_with_type(ObjectType::Core).unwrap_or(pu);
            let l3 = pu.first_ancestor_with_type(ObjectType::L3Cache).map_or(0, TopologyObject::logical_index);
            cores.entry((l3, core.logical_index())).or_default().push(pu);
        }
    }
    let first = cores.values().flatten().next().copied();
    let cache = |ty: ObjectType| first.and_then(|pu| cache_bytes(pu.first_ancestor_with_type(ty)?));
    let package = first.and_then(|pu| pu.first_ancestor_with_type(ObjectType::Package));
    let memory_bytes = match object.attributes() {
        Some(ObjectAttributes::NUMANode(attributes)) => attributes.local_memory().map_or(0, Into::into),
        _ => 0,
    };
    let pu = |pu: &&TopologyObject| Pu { id: pu_id(pu), allowed: allowed.is_set(pu_id(pu).index()) };
    Node {
        id,
        host: 0,
        package: package.map_or(position, |package| package.logical_index() as u32),
        l1_bytes: cache(ObjectType::L1Cache),
        l2_bytes: cache(ObjectType::L2Cache),
        l3: l3_groups(&cores),
        cores: cores.values().map(|pus| Core { pus: pus.iter().map(pu).collect() }).collect(),
        memory_bytes,
        free_bytes: None,
        memory_allowed: topology.allowed_nodeset().is_set(id.index()),
        memory_gb_s: None,
        copy_gb_s: None,
        stream_copy_gb_s: None,
        row_gb_s: None,
        row_update_gb_s: None,
        peak_f32_gflop_s: None,
        peak_bf16_gflop_s: None,
    }
}

fn cache_bytes(object: &TopologyObject) -> Option<u64> {
    match object.attributes() {
        Some(ObjectAttributes::Cache(cache)) => cache.size().map(Into::into),
        _ => None,
    }
}

/// Last-level caches, if they cover all cores; `cores` are sorted by them.
fn l3_groups(cores: &BTreeMap<(usize, usize), Vec<&TopologyObject>>) -> Vec<L3Group> {
    let mut groups: Vec<(usize, L3Group)> = Vec::new();
    for (first_core, ((l3, _), pus)) in cores.iter().enumerate() {
        let Some(bytes) = pus[0].first_ancestor_with_type(ObjectType::L3Cache).and_then(cache_bytes) else {
            return Vec::new();
        };
        match groups.last_mut() {
            Some((last, group)) if last == l3 => group.cores += 1,
            _ => groups.push((*l3, L3Group { bytes, first_core, cores: 1 })),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_synthetic_machines_are_known_before_they_are_built() {
        for (description, size) in [
            ("Package:2 NUMANode:1 Core:28 PU:2", 112),
            ("node:100000 core:100 pu:2", 20_000_000),
            ("2 4 2", 16),
            ("pack:2(memory=4GB indexes=0,1) [numa(memory=99GB)] core:0x10 pu:010", 256),
            ("core:99999999999999999999 pu:2", u64::MAX),
            ("nonsense", 1),
        ] {
            assert_eq!(synthetic_size(description), size, "{description}");
        }
        for (description, largest) in [
            ("core:2 pu:2", 0),
            ("node:2 core:2 pu:2(indexes=0,2,4,6,1,3,5,4294967290)", 4_294_967_290),
            ("node:2(memory=4GB indexes=0,0x1f) core:2(indexes=2*4:1*2) pu:9000", 31),
            ("node:2(indexes=1,0 memory=17179869184) core:2 pu:2", 1),
            ("[numa(indexes=7,99999999999999999999)] pu:2(indexes=core:pu)", u64::MAX),
        ] {
            assert_eq!(largest_index(description), largest, "{description}");
        }
    }
}
