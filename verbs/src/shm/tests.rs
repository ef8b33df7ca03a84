use std::fs::File;
use std::io::Write;

use super::*;

fn memfd(flags: MemfdFlags, len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn both_sides_see_the_same_bytes() {
    let (mut mine, fd) = Block::create("test", 10_000).unwrap();
    let theirs = Block::map(&fd, 10_000).unwrap();
    mine.write(9_996, b"weft").unwrap();
    let mut out = [0; 4];
    theirs.read(9_996, &mut out).unwrap();
    assert_eq!(&out, b"weft");
    mine.word32(64).store(7, std::sync::atomic::Ordering::Release);
    assert_eq!(theirs.word32(64).load(std::sync::atomic::Ordering::Acquire), 7);
}

#[test]
fn nothing_outside_of_the_block_is_touched() {
    let (mut block, _fd) = Block::create("test", 100).unwrap();
    for (offset, len) in [(97, 4), (100, 1), (u64::MAX, 1), (u64::MAX - 1, 4), (1 << 40, 0)] {
        assert_eq!(block.read(offset, &mut vec![0; len]), Err(OutOfRange), "{offset} {len}");
        assert_eq!(block.write(offset, &vec![0; len]), Err(OutOfRange), "{offset} {len}");
    }
    assert_eq!(block.read(100, &mut []), Ok(()));
    let (zero, null) = (File::open("/dev/zero").unwrap(), File::create("/dev/null").unwrap());
    assert_eq!(block.read_from(99, 2, &zero, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(block.write_to(0, 101, &null, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn memory_that_could_fault_under_us_is_refused() {
    let sealed = SealFlags::SHRINK;
    assert!(matches!(Block::map(memfd(MemfdFlags::empty(), 4096, SealFlags::GROW), 4096), Err(ShmError::NotSealed)));
    assert!(matches!(Block::map(memfd(MemfdFlags::empty(), 4095, sealed), 4096), Err(ShmError::TooShort { has: 4095, needs: 4096 })));
    assert!(matches!(Block::map(memfd(MemfdFlags::empty(), 4096, sealed), 0), Err(ShmError::BadLength(0))));
    assert!(matches!(Block::map(memfd(MemfdFlags::empty(), 4096, sealed), u64::MAX), Err(ShmError::TooShort { .. })));
    assert!(matches!(Block::map(memfd(MemfdFlags::HUGETLB, 0, sealed), 4096), Err(ShmError::NotMemfd)));
    for path in ["/dev/zero", "/proc/self/exe", "/proc/self/maps", "/tmp"] {
        assert!(Block::map(File::open(path).unwrap(), 16).is_err(), "{path}");
    }
    let (reader, _writer) = io::pipe().unwrap();
    assert!(Block::map(&reader, 16).is_err());
    assert!(Block::map(memfd(MemfdFlags::empty(), 4096, sealed), 4096).is_ok());
}

#[test]
fn memory_sealed_against_writing_is_refused_and_not_fatal() {
    let fd = memfd(MemfdFlags::empty(), 4096, SealFlags::SHRINK | SealFlags::WRITE);
    assert!(matches!(Block::map(&fd, 4096), Err(ShmError::Os { what: "map", .. })));
}

#[test]
fn the_size_of_a_created_block_can_no_longer_change() {
    let (_block, fd) = Block::create("test", 4096).unwrap();
    assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    assert!(rustix::fs::ftruncate(&fd, 8192).is_err());
    assert!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE).is_err());
}

#[test]
fn files_go_in_and_out_without_a_copy_in_between() {
    let (mut block, fd) = Block::create("test", 64).unwrap();
    let mut file = File::from(rustix::fs::memfd_create("file", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(b"0123456789").unwrap();
    assert_eq!(block.read_from(60, 4, &file, 3).unwrap(), 4);
    assert_eq!(block.read_from(0, 64, &file, 8).unwrap(), 2);
    assert_eq!(block.read_from(0, 64, &file, 10).unwrap(), 0);
    let mut out = [0; 4];
    Block::map(&fd, 64).unwrap().read(60, &mut out).unwrap();
    assert_eq!(&out, b"3456");
    assert_eq!(block.write_to(60, 4, &file, 20).unwrap(), 4);
    assert_eq!(file.metadata().unwrap().len(), 24);
    let unwritable = File::open("/dev/null").unwrap();
    assert!(block.write_to(0, 4, &unwritable, 0).is_err());
}

#[test]
fn words_for_atomics_lie_inside_and_aligned_or_are_refused() {
    let (block, _fd) = Block::create("test", 20).unwrap();
    block.atomic(8).unwrap().store(7, std::sync::atomic::Ordering::Relaxed);
    let mut bytes = [0; 8];
    block.read(8, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 7);
    for offset in [1, 4, 12, 16, 24, u64::MAX, u64::MAX - 7] {
        assert_eq!(block.atomic(offset).map(|_| ()), Err(OutOfRange), "{offset}");
    }
}
