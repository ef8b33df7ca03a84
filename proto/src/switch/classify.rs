//! From a frame's 802.1Q priority to its traffic class.

use crate::wire::eth::{EtherType, Ethernet};

/// The class of a frame: its priority code point, spread evenly over the classes there are; untagged frames are
/// of class 0. With eight classes each priority has its own, with two classes 0-3 and 4-7 share one each.
/// Frames of the stop control EtherType are of the highest class whatever their tag.
pub(super) fn class(header: &Ethernet, classes: usize, control: Option<EtherType>) -> usize {
    if control == Some(header.ethertype) {
        return classes - 1;
    }
    header.vlan.map_or(0, |tag| usize::from(tag.priority) * classes / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::eth::{MacAddr, VlanTag};

    fn header(priority: Option<u8>) -> Ethernet {
        let vlan = priority.map(|priority| VlanTag { priority, drop_eligible: false, id: 1 });
        Ethernet { dst: MacAddr::BROADCAST, src: MacAddr::ZERO, vlan, ethertype: EtherType::TRANSPORT }
    }

    #[test]
    fn priorities_spread_over_the_classes_and_untagged_frames_are_the_lowest() {
        for classes in 1..=8 {
            assert_eq!(class(&header(None), classes, None), 0);
            assert_eq!(class(&header(Some(7)), classes, None), classes - 1);
        }
        let two: alloc::vec::Vec<_> = (0..8).map(|priority| class(&header(Some(priority)), 2, None)).collect();
        assert_eq!(two, [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn stop_control_is_of_the_highest_class_and_nothing_else_is() {
        let stop = Ethernet { ethertype: EtherType::STOP, ..header(Some(0)) };
        assert_eq!(class(&stop, 4, Some(EtherType::STOP)), 3);
        assert_eq!(class(&stop, 1, Some(EtherType::STOP)), 0);
        assert_eq!(class(&stop, 4, Some(EtherType(0xff11))), 0);
        assert_eq!(class(&header(Some(0)), 4, Some(EtherType::STOP)), 0);
    }
}
