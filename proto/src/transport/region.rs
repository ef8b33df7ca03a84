//! Memory regions: which bytes of whose memory a key opens.

use alloc::vec::Vec;

use crate::rng::Rng;
use crate::transport::work::{AtomicOp, SgList, Sge};
use crate::transport::{AppId, CommandError};

/// The driver's name for a block of application memory (a mapped memfd in the daemon, a `Vec` in tests).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemId(pub u32);

/// Rights on a region. Local reading is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Receives and read responses may be placed here.
    pub local_write: bool,
    /// The peer may WRITE here.
    pub remote_write: bool,
    /// The peer may READ from here.
    pub remote_read: bool,
    /// The peer may run atomics here.
    pub remote_atomic: bool,
}

/// Application memory as the core sees it: bytes copied in and out, never a slice, because the application may
/// write it at any time.
pub trait Memory {
    /// Copies `out.len()` bytes at `offset` of block `mem` into `out`.
    ///
    /// # Errors
    /// [`MemoryGone`] if the block is unmapped or shorter; the driver checks, the core has checked the region.
    fn read(&self, mem: MemId, offset: u64, out: &mut [u8]) -> Result<(), MemoryGone>;

    /// Copies `data` to `offset` of block `mem`.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    fn write(&mut self, mem: MemId, offset: u64, data: &[u8]) -> Result<(), MemoryGone>;

    /// Changes the eight bytes at `offset` of block `mem` and returns what they were. Memory that others change at the
    /// same time needs an implementation of its own that does it in one step.
    ///
    /// # Errors
    /// As for [`Memory::read`], and if `offset` is not a multiple of 8.
    fn atomic(&mut self, mem: MemId, offset: u64, op: AtomicOp) -> Result<u64, MemoryGone> {
        if !offset.is_multiple_of(8) {
            return Err(MemoryGone);
        }
        let mut bytes = [0; 8];
        self.read(mem, offset, &mut bytes)?;
        let old = u64::from_ne_bytes(bytes);
        if let Some(new) = op.apply(old) {
            self.write(mem, offset, &new.to_ne_bytes())?;
        }
        Ok(old)
    }
}

/// The block of memory does not exist or is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryGone;

/// The keys of a registered region. Both carry a generation, so that a key of an earlier region in the same slot opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Names the region in local scatter/gather entries.
    pub lkey: u32,
    /// Opens the region to a peer.
    pub rkey: u32,
}

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read by our own requester.
    LocalRead,
    /// Written by our own receives.
    LocalWrite,
    /// Written by the peer.
    RemoteWrite,
    /// Read by the peer.
    RemoteRead,
    /// Changed by the peer's atomics.
    RemoteAtomic,
}

/// The access is refused: unknown key, out of range, no right, or memory gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRefused;

#[derive(Clone, Copy, Debug)]
struct Region {
    owner: AppId,
    mem: MemId,
    base: u64,
    len: u64,
    access: Access,
    secret: u16,
    /// The key was made void; the region is still registered.
    void: bool,
}

#[derive(Clone, Debug)]
struct Slot {
    region: Option<Region>,
    generation: u16,
    /// Odd, so that `generation * factor` visits all 2^16 values before one comes back.
    factor: u16,
    offset: u16,
}

/// The registered regions. A key is a slot (high 16 bits) and a 16-bit secret that is new for every registration in
/// the slot: the generation, scattered by a random bijection so that it cannot be guessed from an older key.
#[derive(Debug)]
pub struct Regions {
    slots: Vec<Slot>,
    free: Vec<u16>,
    limit: usize,
}

impl Regions {
    /// A table for at most `limit` regions (at most 65,536).
    pub fn new(limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(1 << 16);
        Self { slots: Vec::new(), free: Vec::new(), limit }
    }

    /// Registers `len` bytes of `mem`, which the application addresses from `base` on.
    ///
    /// # Errors
    /// [`CommandError::BadArgument`] if the range wraps or is empty, [`CommandError::LimitReached`] if the table is full.
    pub fn register(&mut self, rng: &mut Rng, owner: AppId, mem: MemId, base: u64, len: u64, access: Access) -> Result<Keys, CommandError> {
        if len == 0 || base.checked_add(len).is_none() {
            return Err(CommandError::BadArgument);
        }
        let index = self.take_slot(rng).ok_or(CommandError::LimitReached)?;
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1);
        let secret = slot.generation.wrapping_mul(slot.factor).wrapping_add(slot.offset);
        slot.region = Some(Region { owner, mem, base, len, access, secret, void: false });
        let key = u32::from(index) << 16 | u32::from(secret);
        Ok(Keys { lkey: key, rkey: key })
    }

    fn take_slot(&mut self, rng: &mut Rng) -> Option<u16> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        if self.slots.len() >= self.limit {
            return None;
        }
        let index = u16::try_from(self.slots.len()).ok()?;
        let [a, b, c, d] = rng.next_u32().to_be_bytes();
        self.slots.push(Slot { region: None, generation: 0, factor: u16::from_be_bytes([a, b]) | 1, offset: u16::from_be_bytes([c, d]) });
        Some(index)
    }

    /// Forgets a region: from now on its keys open nothing.
    ///
    /// # Errors
    /// [`CommandError::NoSuchRegion`] if the key opens no region of this owner.
    pub fn deregister(&mut self, owner: AppId, key: u32) -> Result<MemId, CommandError> {
        let mem = self.find(key).filter(|region| region.owner == owner).ok_or(CommandError::NoSuchRegion)?.mem;
        let index = slot_of(key);
        self.slots[usize::from(index)].region = None;
        self.free.push(index);
        Ok(mem)
    }

    /// Makes a key void: it opens nothing any more, but its region is still to be deregistered.
    ///
    /// # Errors
    /// [`AccessRefused`] if the key opens no region of this owner.
    pub fn invalidate(&mut self, owner: AppId, key: u32) -> Result<(), AccessRefused> {
        let index = usize::from(slot_of(key));
        self.find(key).filter(|region| region.owner == owner && !region.void).ok_or(AccessRefused)?;
        if let Some(region) = &mut self.slots[index].region {
            region.void = true;
        }
        Ok(())
    }

    /// True if the key opens a region of this owner.
    pub fn opens(&self, owner: AppId, key: u32) -> bool {
        self.find(key).is_some_and(|region| region.owner == owner && !region.void)
    }

    /// Forgets all regions of an owner and returns their memory.
    pub fn release(&mut self, owner: AppId) -> Vec<MemId> {
        let mut gone = Vec::new();
        for (slot, index) in self.slots.iter_mut().zip(0..=u16::MAX) {
            if let Some(region) = slot.region.take_if(|region| region.owner == owner) {
                self.free.push(index);
                gone.push(region.mem);
            }
        }
        gone
    }

    /// Regions registered.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if no region is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&self, key: u32) -> Option<&Region> {
        let region = self.slots.get(usize::from(slot_of(key)))?.region.as_ref()?;
        (u32::from(region.secret) == key & 0xffff).then_some(region)
    }

    /// Where `len` bytes at `addr` are, if `key` opens them to `owner` with this right.
    ///
    /// # Errors
    /// [`AccessRefused`], whatever the cause: a peer learns nothing about keys that it does not have.
    pub fn check(&self, owner: AppId, key: u32, addr: u64, len: u64, right: Right) -> Result<(MemId, u64), AccessRefused> {
        let region = self.find(key).filter(|region| region.owner == owner && region.grants(right)).ok_or(AccessRefused)?;
        let offset = addr.checked_sub(region.base).ok_or(AccessRefused)?;
        let end = offset.checked_add(len).ok_or(AccessRefused)?;
        if end <= region.len { Ok((region.mem, offset)) } else { Err(AccessRefused) }
    }

    /// Checks every entry of a list.
    ///
    /// # Errors
    /// [`AccessRefused`] if one is refused.
    pub fn check_list(&self, owner: AppId, list: &SgList, right: Right) -> Result<(), AccessRefused> {
        list.entries()
            .iter()
            .filter(|sge| sge.len > 0)
            .try_for_each(|sge| self.check(owner, sge.lkey, sge.addr, u64::from(sge.len), right).map(drop))
    }

    /// Copies the bytes from `offset` on of the gathered `list` to `out`.
    ///
    /// # Errors
    /// [`AccessRefused`] if a piece is refused or the list is too short.
    pub fn gather(&self, owner: AppId, list: &SgList, offset: u64, out: &mut [u8], memory: &impl Memory) -> Result<(), AccessRefused> {
        let mut done = 0;
        for_each_piece(list, offset, out.len(), |sge, addr, len| {
            let (mem, at) = self.check(owner, sge.lkey, addr, len as u64, Right::LocalRead)?;
            memory.read(mem, at, &mut out[done..done + len]).map_err(|MemoryGone| AccessRefused)?;
            done += len;
            Ok(())
        })
    }

    /// Copies `data` to the bytes from `offset` on of the scattered `list`.
    ///
    /// # Errors
    /// [`AccessRefused`] if a piece is refused or the list is too short.
    pub fn scatter(&self, owner: AppId, list: &SgList, offset: u64, data: &[u8], memory: &mut impl Memory) -> Result<(), AccessRefused> {
        let mut done = 0;
        for_each_piece(list, offset, data.len(), |sge, addr, len| {
            let (mem, at) = self.check(owner, sge.lkey, addr, len as u64, Right::LocalWrite)?;
            memory.write(mem, at, &data[done..done + len]).map_err(|MemoryGone| AccessRefused)?;
            done += len;
            Ok(())
        })
    }
}

impl Region {
    const fn grants(&self, right: Right) -> bool {
        if self.void {
            return false;
        }
        match right {
            Right::LocalRead => true,
            Right::LocalWrite => self.access.local_write,
            Right::RemoteWrite => self.access.remote_write,
            Right::RemoteRead => self.access.remote_read,
            Right::RemoteAtomic => self.access.remote_atomic,
        }
    }
}

fn slot_of(key: u32) -> u16 {
    let [a, b, _, _] = key.to_be_bytes();
    u16::from_be_bytes([a, b])
}

/// Calls `visit(entry, address, length)` for each contiguous piece of `len` bytes from `offset` on of the list.
fn for_each_piece(
    list: &SgList,
    offset: u64,
    len: usize,
    mut visit: impl FnMut(&Sge, u64, usize) -> Result<(), AccessRefused>,
) -> Result<(), AccessRefused> {
    let (mut skip, mut left) = (offset, len);
    for sge in list.entries() {
        if left == 0 {
            break;
        }
        let size = u64::from(sge.len);
        if skip >= size {
            skip -= size;
            continue;
        }
        let piece = usize::try_from(size - skip).unwrap_or(usize::MAX).min(left);
        visit(sge, sge.addr.checked_add(skip).ok_or(AccessRefused)?, piece)?;
        left -= piece;
        skip = 0;
    }
    if left == 0 { Ok(()) } else { Err(AccessRefused) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: AppId = AppId(1);

    #[test]
    fn a_key_of_an_earlier_region_in_the_slot_opens_nothing() {
        let (mut regions, mut rng) = (Regions::new(1), Rng::from_seed(1));
        let old = regions.register(&mut rng, OWNER, MemId(0), 0, 8, Access::default()).unwrap();
        regions.deregister(OWNER, old.lkey).unwrap();
        let new = regions.register(&mut rng, OWNER, MemId(1), 0, 8, Access::default()).unwrap();
        assert_ne!(old.lkey, new.lkey);
        assert_eq!(regions.check(OWNER, old.lkey, 0, 8, Right::LocalRead), Err(AccessRefused));
        assert_eq!(regions.check(OWNER, new.lkey, 0, 8, Right::LocalRead), Ok((MemId(1), 0)));
    }

    #[test]
    fn range_right_and_owner_are_checked() {
        let (mut regions, mut rng) = (Regions::new(4), Rng::from_seed(1));
        let access = Access { local_write: true, ..Access::default() };
        let keys = regions.register(&mut rng, OWNER, MemId(7), 100, 50, access).unwrap();
        let check = |addr, len, right| regions.check(OWNER, keys.rkey, addr, len, right);
        assert_eq!(check(110, 40, Right::LocalWrite), Ok((MemId(7), 10)));
        assert_eq!(check(110, 41, Right::LocalWrite), Err(AccessRefused));
        assert_eq!(check(99, 1, Right::LocalWrite), Err(AccessRefused));
        assert_eq!(check(110, u64::MAX, Right::LocalWrite), Err(AccessRefused));
        assert_eq!(check(110, 1, Right::RemoteWrite), Err(AccessRefused));
        assert_eq!(regions.check(AppId(2), keys.rkey, 110, 1, Right::LocalRead), Err(AccessRefused));
        assert_eq!(regions.register(&mut rng, OWNER, MemId(8), u64::MAX, 2, access), Err(CommandError::BadArgument));
    }
}
