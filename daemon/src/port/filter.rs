//! Classic BPF programs that keep the kernel's own traffic in the kernel.
//!
//! Pure: builds instructions, attaches nothing. The packet socket is the caller.

use libc::{BPF_ABS, BPF_H, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, sock_filter};

/// Offset of the type field in an Ethernet header. The kernel takes the outer VLAN tag out of a frame before it runs
/// the filter, so a tagged frame shows the type behind its tag here.
const TYPE_OFFSET: u32 = 12;
/// Take the frame at full length.
const ACCEPT: u32 = u32::MAX;
/// Leave the frame to the kernel.
const REJECT: u32 = 0;
/// Jumps are 8 bits wide; each type takes one instruction, and one more stands between the last and its target.
const MAX_TYPES: usize = 254;

/// A program that accepts frames of the given EtherTypes (at most 254, further ones are left out) and nothing else.
pub(super) fn accept_only(ethertypes: &[u16]) -> Vec<sock_filter> {
    let types = &ethertypes[..ethertypes.len().min(MAX_TYPES)];
    let mut program = vec![instruction(BPF_LD | BPF_H | BPF_ABS, 0, TYPE_OFFSET)];
    for (done, ethertype) in types.iter().enumerate() {
        // Over the remaining comparisons and the rejection to the acceptance at the end.
        let skip = u8::try_from(types.len() - done).unwrap_or(u8::MAX);
        program.push(instruction(BPF_JMP | BPF_JEQ | BPF_K, skip, u32::from(*ethertype)));
    }
    program.push(instruction(BPF_RET | BPF_K, 0, REJECT));
    program.push(instruction(BPF_RET | BPF_K, 0, ACCEPT));
    program
}

fn instruction(code: u32, jump_true: u8, k: u32) -> sock_filter {
    // All operation codes of classic BPF are below 2^16.
    sock_filter { code: u16::try_from(code).unwrap_or(0), jt: jump_true, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three kinds of instruction used above, interpreted.
    fn run(program: &[sock_filter], frame: &[u8]) -> u32 {
        let (mut accumulator, mut at) = (0, 0);
        loop {
            let step = program[at];
            match u32::from(step.code) {
                code if code == BPF_LD | BPF_H | BPF_ABS => {
                    let offset = step.k as usize;
                    accumulator = u32::from(u16::from_be_bytes([frame[offset], frame[offset + 1]]));
                }
                code if code == BPF_JMP | BPF_JEQ | BPF_K => {
                    at += usize::from(if accumulator == step.k { step.jt } else { step.jf });
                }
                _ => return step.k,
            }
            at += 1;
        }
    }

    #[test]
    fn every_listed_ethertype_is_accepted_and_all_others_are_not() {
        for types in [&[0x88b5][..], &[0x88b5, 0xff10], &[1, 2, 3, 4, 5, 6, 7]] {
            let program = accept_only(types);
            for ethertype in 0..=u16::MAX {
                let mut frame = [0; 14];
                frame[12..].copy_from_slice(&ethertype.to_be_bytes());
                assert_eq!(run(&program, &frame) == ACCEPT, types.contains(&ethertype), "{ethertype:#x} of {types:x?}");
            }
        }
    }

    #[test]
    fn the_longest_list_still_jumps_to_its_acceptance() {
        let types: Vec<u16> = (1..400).collect();
        let program = accept_only(&types);
        let frame = |ethertype: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ethertype];
        assert_eq!(run(&program, &frame(1)), ACCEPT);
        assert_eq!(run(&program, &frame(254)), ACCEPT);
        assert_eq!(run(&program, &frame(255)), REJECT);
    }
}
