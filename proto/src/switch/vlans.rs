//! Which VLANs a port belongs to (IEEE 802.1Q: its member set). Frames are neither tagged nor untagged by a port.

use alloc::sync::Arc;

use crate::wire::eth::Ethernet;

/// VLAN identifiers in a tag.
const IDS: usize = 4096;

/// A member set. Identifier 0 stands for frames without a VLAN: untagged, or tagged with a priority only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlans {
    /// A bit per identifier; none = all.
    members: Option<Arc<[u64; IDS / 64]>>,
}

impl Vlans {
    /// Every VLAN, and frames without one.
    pub const ALL: Self = Self { members: None };

    /// These identifiers only; those above 4095 are left out.
    pub fn of(ids: &[u16]) -> Self {
        let mut members = [0; IDS / 64];
        for &id in ids {
            if let Some(word) = members.get_mut(usize::from(id / 64)) {
                *word |= 1 << (id % 64);
            }
        }
        Self { members: Some(Arc::new(members)) }
    }

    /// True if a VLAN is in the set.
    pub fn contain(&self, id: u16) -> bool {
        self.members.as_ref().is_none_or(|members| members.get(usize::from(id / 64)).is_some_and(|word| word >> (id % 64) & 1 == 1))
    }
}

/// The VLAN that a frame says it belongs to; 0 = none.
pub(super) fn vlan_of(header: &Ethernet) -> u16 {
    header.vlan.map_or(0, |tag| tag.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_it_was_made_of_and_the_default_everything() {
        let set = Vlans::of(&[0, 10, 4094, 5000]);
        let members: alloc::vec::Vec<_> = (0..4096).filter(|&id| set.contain(id)).collect();
        assert_eq!(members, [0, 10, 4094]);
        assert!((0..4096).all(|id| Vlans::ALL.contain(id)) && !set.contain(5000));
    }
}
