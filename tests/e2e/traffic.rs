//! Ordinary traffic of the kernels of a and b crosses the switch, beside the transport.

use std::process::Command;

use crate::helper::{Role, TCP_SEED, result};
use crate::support::{Background, LONG, Lab, Receiver, Topology, copy, pattern, run, sha256, skip};

const LEN: usize = 20 << 20;

fn lab() -> Lab {
    Lab::up(&Topology { link_a: "rate: 1Gbit,", link_b: "rate: 1Gbit,", addresses: true, ..Topology::default() })
}

#[test]
fn echo_requests_of_all_sizes_are_answered() {
    let lab = lab();
    let told = run(Role::Icmp { address: "10.77.0.2".to_owned() }.command(&lab, "a"), LONG).ok();
    assert_eq!(result(&told.stdout), "24 answers");
    // ARP and ICMP taught the switch both addresses.
    assert_eq!(lab.json("s", &["fdb", "show"]).as_array().unwrap().len(), 2);

    if Command::new("ping").arg("-V").output().is_err() {
        return skip("the program ping", "it is not installed; echo requests went through a raw socket instead");
    }
    let told = run(lab.inside("b", ["ping", "-c", "5", "-i", "0.2", "-W", "5", "10.77.0.1"]), LONG).ok();
    assert!(told.stdout.contains(" 0% packet loss"), "{}", told.stdout);
}

#[test]
fn a_tcp_stream_with_all_offloads_crosses_beside_a_file() {
    let lab = lab();
    let address = "10.77.0.2:7000".to_owned();
    let server = Background::start(Role::TcpServer { address: address.clone() }.command(&lab, "b"));
    server.says("ready", LONG);
    let content = pattern(11, 8 << 20);
    let file = lab.folder.file("beside", &content);
    let receiver = Receiver::start(&lab, "b", "in", &["--once"]);
    let copying = copy(&lab, ("a", "b"), &[file], &[]);
    let client = Background::start(Role::TcpClient { address, len: LEN }.command(&lab, "a"));

    assert_eq!(result(&client.wait(LONG).ok().stdout), "got it");
    assert_eq!(result(&server.wait(LONG).ok().stdout), format!("{LEN} {}", sha256(&pattern(TCP_SEED, LEN))));
    copying.wait(LONG).ok();
    receiver.wait(LONG).ok();
    assert!(std::fs::read(lab.folder.path().join("in/beside")).unwrap() == content);
}
