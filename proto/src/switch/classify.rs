//! From a frame's 802.1Q priority to its traffic class.

use crate::wire::eth::Ethernet;

/// The class of a frame: its priority code point, spread evenly over the classes there are; untagged frames are
/// of class 0. With eight classes each priority has its own, with two classes 0-3 and 4-7 share one each.
pub(super) fn class(header: &Ethernet, classes: usize) -> usize {
    header.vlan.map_or(0, |tag| usize::from(tag.priority) * classes / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::eth::{EtherType, MacAddr, VlanTag};

    fn header(priority: Option<u8>) -> Ethernet {
        let vlan = priority.map(|priority| VlanTag { priority, drop_eligible: false, id: 1 });
        Ethernet { dst: MacAddr::BROADCAST, src: MacAddr::ZERO, vlan, ethertype: EtherType::TRANSPORT }
    }

    #[test]
    fn priorities_spread_over_the_classes_and_untagged_frames_are_the_lowest() {
        for classes in 1..=8 {
            assert_eq!(class(&header(None), classes), 0);
            assert_eq!(class(&header(Some(7)), classes), classes - 1);
        }
        let two: alloc::vec::Vec<_> = (0..8).map(|priority| class(&header(Some(priority)), 2)).collect();
        assert_eq!(two, [0, 0, 0, 0, 1, 1, 1, 1]);
    }
}
