//! A window of packets as bits: bit `i` speaks of the packet `i` behind the window's base.

/// Packets that a window can hold. IRN's NIC has 128; at software round trips 100 Gbit/s needs more.
pub const WINDOW: u32 = 1024;
const WORDS: usize = 16;
const _: () = assert!(WINDOW as usize == WORDS * 64);

/// A fixed bitmap of [`WINDOW`] bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bitmap {
    words: [u64; WORDS],
    ones: u32,
}

impl Default for Bitmap {
    fn default() -> Self {
        Self { words: [0; WORDS], ones: 0 }
    }
}

const fn place(bit: u32) -> (usize, u64) {
    ((bit / 64) as usize, 1 << (bit % 64))
}

impl Bitmap {
    /// True if the bit is set. Bits outside the window are not.
    pub fn contains(&self, bit: u32) -> bool {
        let (word, mask) = place(bit);
        self.words.get(word).is_some_and(|w| w & mask != 0)
    }

    /// Sets a bit and returns whether it was clear. Bits outside the window stay clear.
    pub fn insert(&mut self, bit: u32) -> bool {
        let (word, mask) = place(bit);
        let Some(slot) = self.words.get_mut(word) else { return false };
        let fresh = *slot & mask == 0;
        *slot |= mask;
        self.ones += u32::from(fresh);
        fresh
    }

    /// Moves the base `by` bits on; the bits before it are forgotten.
    pub fn advance(&mut self, by: u32) {
        if self.ones == 0 || by == 0 {
            return;
        }
        if by >= WINDOW {
            return *self = Self::default();
        }
        let (whole, part) = ((by / 64) as usize, by % 64);
        let old = self.words;
        for (index, word) in self.words.iter_mut().enumerate() {
            let low = old.get(index + whole).copied().unwrap_or(0);
            let high = old.get(index + whole + 1).copied().unwrap_or(0);
            *word = if part == 0 { low } else { low >> part | high << (64 - part) };
        }
        self.ones = self.words.iter().map(|w| w.count_ones()).sum();
    }

    /// Number of set bits.
    pub const fn len(&self) -> u32 {
        self.ones
    }

    /// True if no bit is set.
    pub const fn is_empty(&self) -> bool {
        self.ones == 0
    }

    /// The highest set bit.
    pub fn highest(&self) -> Option<u32> {
        if self.ones == 0 {
            return None;
        }
        let (word, value) = (0u32..).zip(self.words).filter(|&(_, value)| value != 0).last()?;
        Some(word * 64 + 63 - value.leading_zeros())
    }

    /// The first clear bit at or behind `from`, which may be [`WINDOW`] (everything behind `from` is set).
    pub fn first_clear(&self, from: u32) -> u32 {
        let mut bit = from;
        while bit < WINDOW {
            let (word, _) = place(bit);
            let holes = !self.words[word] >> (bit % 64);
            if holes != 0 {
                return bit + holes.trailing_zeros();
            }
            bit = (bit / 64 + 1) * 64;
        }
        bit
    }

    /// The bits as words, lowest first.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.words
    }
}
