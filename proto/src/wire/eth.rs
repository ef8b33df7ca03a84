//! Ethernet II with an optional 802.1Q tag.
//!
//! ```text
//!  0        6        12     14
//!  | DA (6) | SA (6) | type | payload                      untagged
//!  | DA (6) | SA (6) | 8100 | PCP 3, DEI 1, VID 12 | type | payload   tagged
//! ```

use core::fmt;
use core::str::FromStr;

use crate::drops::DropReason;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// ff:ff:ff:ff:ff:ff
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// 00:00:00:00:00:00, which no station has.
    pub const ZERO: Self = Self([0; 6]);

    /// True for multicast and broadcast addresses.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// True for 01-80-C2-00-00-00 to -0F: link-local protocols that a bridge never forwards (IEEE 802.1Q 8.6.3).
    pub const fn is_reserved(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00..=0x0f])
    }

    /// True if a station may send from this address.
    pub const fn is_station(self) -> bool {
        !self.is_group() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six pairs of hexadecimal digits separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMacAddr;

impl FromStr for MacAddr {
    type Err = BadMacAddr;

    fn from_str(text: &str) -> Result<Self, BadMacAddr> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit())).ok_or(BadMacAddr)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| BadMacAddr)?;
        }
        if parts.next().is_none() { Ok(Self(octets)) } else { Err(BadMacAddr) }
    }
}

/// The type field of an Ethernet II frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// 802.1Q customer tag.
    pub const VLAN: Self = Self(0x8100);
    /// MAC control (PAUSE, PFC): ends at the station it reaches, whatever its destination (IEEE 802.3 31.3).
    pub const MAC_CONTROL: Self = Self(0x8808);
    /// Weft transport: IEEE local experimental EtherType 1, by default.
    pub const TRANSPORT: Self = Self(0x88b5);
    /// Weft link control and fabric tag: IEEE local experimental EtherType 2, by default.
    pub const LINK: Self = Self(0x88b6);
    /// Stop control, by default.
    pub const STOP: Self = Self(0xff10);
}

/// 802.1Q tag control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN identifier, 0 to 4095; 0 = priority tag only.
    pub id: u16,
}

impl VlanTag {
    /// The tag of a 16-bit tag control information field.
    pub const fn from_tci(tci: u16) -> Self {
        Self { priority: (tci >> 13) as u8, drop_eligible: tci & 0x1000 != 0, id: tci & 0x0fff }
    }

    /// The 16-bit tag control information field.
    pub const fn tci(self) -> u16 {
        (self.priority as u16 & 7) << 13 | (self.drop_eligible as u16) << 12 | self.id & 0x0fff
    }
}

/// The Ethernet header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// The outermost 802.1Q tag, if there is one.
    pub vlan: Option<VlanTag>,
    /// Type of the payload, behind the tag.
    pub ethertype: EtherType,
}

/// Bytes of an untagged header.
pub const ETH_HEADER: usize = 14;
/// Bytes of an 802.1Q tag.
pub const VLAN_HEADER: usize = 4;
/// Shortest frame on the wire without FCS (IEEE 802.3 3.2.8); shorter ones are padded with zeros.
pub const MIN_FRAME: usize = 60;

impl Ethernet {
    /// Splits a frame into its header and the bytes behind it (payload and possibly padding).
    ///
    /// # Errors
    /// [`DropReason::Truncated`] if the header is incomplete.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        let (head, rest) = frame.split_first_chunk::<ETH_HEADER>().ok_or(DropReason::Truncated)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *head;
        let (dst, src) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
        let outer = EtherType(u16::from_be_bytes([t0, t1]));
        if outer != EtherType::VLAN {
            return Ok((Self { dst, src, vlan: None, ethertype: outer }, rest));
        }
        let (tag, rest) = rest.split_first_chunk::<VLAN_HEADER>().ok_or(DropReason::Truncated)?;
        let vlan = Some(VlanTag::from_tci(u16::from_be_bytes([tag[0], tag[1]])));
        Ok((Self { dst, src, vlan, ethertype: EtherType(u16::from_be_bytes([tag[2], tag[3]])) }, rest))
    }

    /// Bytes that this header takes.
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() { ETH_HEADER + VLAN_HEADER } else { ETH_HEADER }
    }

    /// Never: a header always has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the start of `out` and returns its length; `None` if it does not fit.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        let mut at = 12;
        if let Some(vlan) = self.vlan {
            out[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
            out[14..16].copy_from_slice(&vlan.tci().to_be_bytes());
            at = 16;
        }
        out[at..].copy_from_slice(&self.ethertype.0.to_be_bytes());
        Some(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_tagged_header_survives_the_round_trip() {
        let header = Ethernet {
            dst: MacAddr([2, 0, 0, 0, 0, 1]),
            src: MacAddr([2, 0, 0, 0, 0, 2]),
            vlan: Some(VlanTag { priority: 5, drop_eligible: true, id: 7 }),
            ethertype: EtherType::TRANSPORT,
        };
        let mut frame = [0; 20];
        assert_eq!(header.emit(&mut frame), Some(18));
        assert_eq!(Ethernet::parse(&frame), Ok((header, &[0, 0][..])));
        assert_eq!(Ethernet::parse(&frame[..17]), Err(DropReason::Truncated));
    }

    #[test]
    fn addresses_print_and_parse_and_know_their_kind() {
        let mac: MacAddr = "01:80:c2:00:00:0e".parse().unwrap();
        assert_eq!(mac.to_string(), "01:80:c2:00:00:0e");
        assert!(mac.is_group() && mac.is_reserved() && !mac.is_station());
        for bad in ["", "1:2:3:4:5:6", "01:80:c2:00:00", "01:80:c2:00:00:0e:00", "+1:80:c2:00:00:0e"] {
            assert_eq!(bad.parse::<MacAddr>(), Err(BadMacAddr), "{bad}");
        }
    }
}
