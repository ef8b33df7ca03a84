//! Path entropy: the packets of one queue pair spread over several VLANs, each of which may be a path of its own.
//! Selective recovery tolerates the disorder that this makes; go-back-N does not.

/// Most paths.
pub const MAX_PATHS: usize = 8;
/// The VLAN identifiers that a frame may name (IEEE 802.1Q table 9-2: 0 and 4095 are reserved).
pub const VLAN_IDS: core::ops::RangeInclusive<u16> = 1..=4094;

/// The VLANs that frames are spread over; none: frames carry no VLAN identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    ids: [u16; MAX_PATHS],
    count: u8,
}

impl Paths {
    /// No spreading.
    pub const OFF: Self = Self { ids: [0; MAX_PATHS], count: 0 };

    /// Paths over these VLANs; `None` if there are more than [`MAX_PATHS`], or one is not among [`VLAN_IDS`].
    pub fn new(ids: &[u16]) -> Option<Self> {
        let mut paths = Self::OFF;
        paths.ids.get_mut(..ids.len())?.copy_from_slice(ids);
        paths.count = u8::try_from(ids.len()).ok()?;
        ids.iter().all(|id| VLAN_IDS.contains(id)).then_some(paths)
    }

    /// The VLAN of a frame whose turn this is: one after the other.
    pub fn at(&self, turn: u32) -> Option<u16> {
        let index = turn.checked_rem(u32::from(self.count))?;
        self.ids.get(index as usize).copied()
    }

    /// The VLANs.
    pub fn ids(&self) -> &[u16] {
        &self.ids[..usize::from(self.count)]
    }

    /// How many turns later than the first time a packet is sent again, so that it takes another path than then; `luck` is anything
    /// that changes, so that further retransmissions try the others.
    pub fn detour(&self, luck: u32) -> u32 {
        luck.checked_rem(u32::from(self.count).saturating_sub(1)).map_or(0, |others| others + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round_and_a_detour_never_takes_the_first_path_again() {
        let paths = Paths::new(&[10, 20, 30]).unwrap();
        assert_eq!([0, 1, 2, 3].map(|turn| paths.at(turn)), [10, 20, 30, 10].map(Some));
        for luck in 0..10 {
            for turn in 0..10 {
                assert_ne!(paths.at(turn), paths.at(turn + paths.detour(luck)));
            }
        }
        assert_eq!((Paths::OFF.at(5), Paths::OFF.detour(5)), (None, 0));
        assert_eq!(Paths::new(&[7]).map(|one| (one.at(3), one.detour(3))), Some((Some(7), 0)));
    }

    #[test]
    fn more_paths_than_eight_and_reserved_vlans_are_refused() {
        assert_eq!(Paths::new(&[1; 9]), None);
        assert_eq!((Paths::new(&[0]), Paths::new(&[4095])), (None, None));
        assert!(Paths::new(&[1; 8]).is_some() && Paths::new(&[4094]).is_some());
    }
}
