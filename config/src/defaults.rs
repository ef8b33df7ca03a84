//! Every default and every limit of the configuration, with its derivation, in one place.
//!
//! Timing starts from measured round trips: two blocking daemons on AF_PACKET that share two cores see 50 us when idle and about 1 ms when both cores are busy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use weft_proto::stop::CONTROL_PRIORITY;
use weft_proto::switch::FlowConfig;
use weft_proto::transport::congestion::{Algorithm, Settings};
use weft_proto::transport::irn::bitmap::WINDOW;
use weft_proto::transport::irn::window::START_ROUND_TRIP;
use weft_proto::wire::EtherType;
use weft_proto::{BitRate, Duration};

use crate::units::Probability;

/// Version of the configuration format.
pub const VERSION: u64 = 1;

// ---- sockets
/// Administration socket: the service's runtime folder, as systemd's `RuntimeDirectory=weft` makes it.
pub const CONTROL_SOCKET: &str = "/run/weft/weftd.sock";
/// Owner and group may administer.
pub const CONTROL_MODE: u32 = 0o660;
/// Socket that applications attach to.
pub const APPLICATIONS_SOCKET: &str = "/run/weft/app.sock";
/// Everybody may attach; what an application can reach is bounded by the limits below and by its keys.
pub const APPLICATIONS_MODE: u32 = 0o666;
/// Longest socket path: `sun_path` has 108 bytes, one for the final zero (unix(7)).
pub const MAX_SOCKET_PATH: usize = 107;
/// Prometheus text: this host only, and the port that the exporter registry does not give to another exporter.
pub const METRICS_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9469);

// ---- applications
/// Attached applications at a time: one per core of a large host.
pub const MAX_APPLICATIONS: u32 = 64;
/// Most attached applications.
pub const LIMIT_APPLICATIONS: u32 = 4096;
/// Queue pairs of one application: an all-to-all job of 256 peers.
pub const MAX_QPS_PER_APPLICATION: u32 = 256;
/// Shared receive queues of one application: one per core of a large host, each with a thread that serves it.
pub const MAX_SRQS_PER_APPLICATION: u32 = 64;
/// Regions of one application.
pub const MAX_REGIONS_PER_APPLICATION: u32 = 1024;
/// Memory that one application may map into the daemon: bounds address space, not resident memory.
pub const MAX_MEMORY_PER_APPLICATION: u64 = 16 << 30;
/// Allowed: from one page to half of a process's address space on x86-64.
pub const MEMORY_PER_APPLICATION: RangeInclusive<u64> = 4096..=1 << 46;

// ---- ports
/// Ports of a node.
pub const MAX_PORTS: usize = 256;
/// Longest interface name: IFNAMSIZ is 16 with the final zero (netdevice(7)).
pub const MAX_INTERFACE_NAME: usize = 15;
/// Longest name of a node, port or host: a DNS label (RFC 1035 2.3.4).
pub const MAX_NAME: usize = 63;
/// Smallest MTU: that of a connection message with all its private data.
pub const MIN_MTU: u32 = 272;
const _: () = assert!(MIN_MTU as usize == weft_proto::wire::packet::MIN_MTU);
/// Largest MTU: that of Linux's Ethernet-like devices.
pub const MAX_MTU: u32 = 65_535;
/// MTU to reckon with where the interface is to be asked (`mtu: auto`): IEEE 802.3 3.2.7.
pub const USUAL_MTU: u32 = 1500;
/// Bytes around an Ethernet payload: header and one 802.1Q tag. The FCS is the driver's business.
pub const FRAME_OVERHEAD: u32 = 18;
/// A port whose rate takes longer than this for one full frame is a mistake in the unit.
pub const MAX_FRAME_TIME: Duration = Duration::from_secs(1);
/// Fastest configurable rate: 1.6 Tbit/s Ethernet is the fastest in IEEE's plans (802.3dj).
pub const MAX_RATE: u64 = 1_600_000_000_000;
/// Longest delay that an impairment may add: what it holds back occupies frame buffers.
pub const MAX_IMPAIRMENT_DELAY: Duration = Duration::from_secs(10);
/// How far a reordered frame falls behind if not told: about ten full frames at 1 Gbit/s.
pub const REORDER_DELAY: Duration = Duration::from_micros(100);

// ---- switch
/// Learned addresses: one Ethernet segment; about 32 bytes each.
pub const MAC_TABLE_SIZE: u32 = 8192;
/// Most learned addresses: 32 MiB.
pub const MAX_MAC_TABLE_SIZE: u32 = 1 << 20;
/// Ageing time: IEEE 802.1Q 8.8.3 recommends 300 s.
pub const MAC_AGEING: Duration = Duration::from_secs(300);
/// Shortest ageing time: 802.1Q allows 10 s to 1,000,000 s.
pub const MIN_MAC_AGEING: Duration = Duration::from_secs(10);
/// Longest ageing time: see above.
pub const MAX_MAC_AGEING: Duration = Duration::from_secs(1_000_000);
/// Bytes per virtual output queue: 0.8 ms at 10 Gbit/s, above one round trip between two daemons, and more than a
/// queue pair's window of full frames.
pub const VOQ_LIMIT: u64 = 1 << 20;
/// Largest limit per virtual output queue.
pub const MAX_VOQ_LIMIT: u64 = 1 << 30;
/// Traffic classes: one per 802.1p priority.
pub const CLASSES: u32 = 8;
/// Weight of a class.
pub const WEIGHT: u32 = 1;
/// Largest weight of a class: with the largest quantum a turn stays below 2^32 bytes.
pub const MAX_WEIGHT: u32 = 1000;
/// Bytes that a turn of the deficit round robin gives to weight 1: one full tagged frame, so that a turn serves at least one frame
/// (Shreedhar and Varghese: constant work per frame).
pub const QUANTUM: u32 = USUAL_MTU + FRAME_OVERHEAD;
/// Smallest quantum: the shortest Ethernet frame; less only means more empty turns.
pub const MIN_QUANTUM: u32 = 64;
/// Largest quantum: more than one super-frame makes turns unfair for no gain.
pub const MAX_QUANTUM: u32 = 1 << 17;

/// The highest class is served before all others if there are several: 802.1Q gives network control (priority 7) to it, which is
/// little and must not wait.
pub const STRICT_CLASSES: u8 = 1;
/// Bytes waiting in the switch from which a port asks the other end of its link to stop: 50 us at 10 Gbit/s. At most half of a
/// virtual output queue, so that what is still on its way finds room.
pub const XOFF: u64 = FLOW.xoff;
/// Bytes down to which it lets the other end go on, as a part of `xoff`: half, so that a link is not switched with every frame.
pub const XON_PART: u64 = 2;
/// How long it asks for: asked again after half of that, which a worker that sleeps for a millisecond does not miss, and below the
/// longest time that fits at 10 Gbit/s (3.36 ms).
pub const PAUSE_TIME: Duration = FLOW.pause_time;
/// Longest time to ask for: what fits at 10 Mbit/s is 3.4 s.
pub const MAX_PAUSE_TIME: Duration = Duration::from_secs(1);
/// A longer pause without a break is not obeyed: above any congestion of one link, below the usual time-outs of applications (1 s).
pub const PAUSE_WATCHDOG: Duration = FLOW.watchdog;
/// Shortest time of the watchdog: ten of a thread's usual delays on a busy machine.
pub const MIN_PAUSE_WATCHDOG: Duration = Duration::from_millis(10);
/// Longest time of the watchdog.
pub const MAX_PAUSE_WATCHDOG: Duration = Duration::from_secs(60);
const FLOW: FlowConfig = FlowConfig::DEFAULT;

/// Marking starts when an output has waiting one part in so many of a virtual output queue's limit: 128 KiB of 1 MiB, 100 us
/// at 10 Gbit/s, twice an idle round trip. Fewer bytes would idle the link between DCTCP's decreases, which take half at most.
pub const MARKING_PART: u64 = 8;
/// Share marked at the upper threshold: all, as DCTCP's single threshold.
pub const MARKING_PMAX: Probability = Probability::ALWAYS;

// ---- transport
/// Packets with which a congestion window starts: RFC 6928.
pub const FIRST_WINDOW: u32 = SETTINGS.first_window;
/// Queueing delay that counts as congestion for Swift: four idle round trips of two daemons, so that noise of their
/// wake-ups does not count; 250 kB at 10 Gbit/s, a quarter of a virtual output queue, so that it is noticed before drops.
pub const QUEUEING_DELAY: Duration = SETTINGS.queueing_delay;
/// Most that this grows for small windows: half of it (the paper leaves it open).
pub const FLOW_SCALING: Duration = SETTINGS.flow_scaling;
/// Queueing delay up to which TIMELY's rate grows: as Swift's. The paper's 50 us are 2.5 of its round trips.
pub const TIMELY_LOW: Duration = SETTINGS.timely_low;
/// Queueing delay from which TIMELY's rate falls: the round trip of busy daemons. The paper has ten times the lower one.
pub const TIMELY_HIGH: Duration = SETTINGS.timely_high;
/// Time between congestion notifications: 50 us (Zhu et al., SIGCOMM 2015).
pub const NOTIFICATION_INTERVAL: Duration = SETTINGS.notification_interval;
/// Lowest rate of TIMELY and DCQCN: a full frame per busy round trip.
pub const MIN_CONGESTION_RATE: BitRate = SETTINGS.min_rate;
/// Longest time among these parameters: the transport takes longer round trips for nonsense.
pub const MAX_CONGESTION_TIME: Duration = Duration::from_secs(1);
const SETTINGS: Settings = Settings::new(Algorithm::None, LINK_RATE);
/// EtherType of the transport: IEEE local experimental 1.
pub const TRANSPORT_ETHERTYPE: EtherType = EtherType::TRANSPORT;
/// Smaller type fields are lengths (IEEE 802.3 3.2.6).
pub const MIN_ETHERTYPE: u16 = 0x0600;
/// Short time-out, for few packets in flight. The paper's 100 us is below our round trip; twice the longest usual one is not.
pub const RTO_LOW: Duration = Duration::from_millis(1);
/// Long time-out per short one: the paper's ratio of about 1 to 3, with room for a queue of full frames in front.
pub const RTO_HIGH_PER_LOW: u64 = 4;
/// Shortest configurable time-out: the granularity of a sleeping thread.
pub const MIN_RTO: Duration = Duration::from_micros(50);
/// Longest configurable time-out.
pub const MAX_RTO: Duration = Duration::from_secs(10);
/// Time-outs in a row: InfiniBand's largest retry count.
pub const RETRY_COUNT: u8 = 7;
/// Most time-outs in a row.
pub const MAX_RETRY_COUNT: u8 = 100;
/// Receiver-not-ready retries: endless, as most users of InfiniBand set it.
pub const RNR_RETRY: u8 = 7;
/// Largest value, endless (InfiniBand vol. 1, 9.7.5.2.8).
pub const MAX_RNR_RETRY: u8 = 7;
/// Wait after receiver-not-ready: an application that sleeps needs a wake-up and a post, two round trips.
pub const RNR_DELAY: Duration = Duration::from_millis(1);
/// Shortest receiver-not-ready delay: InfiniBand's shortest.
pub const MIN_RNR_DELAY: Duration = Duration::from_micros(10);
/// Longest receiver-not-ready delay: InfiniBand's longest is 655 ms.
pub const MAX_RNR_DELAY: Duration = Duration::from_secs(1);
/// Part of the short time-out that an acknowledgement may wait: 100 us of 1 ms, so that waiting never looks like loss.
pub const ACK_DELAY_PART: u64 = 10;
/// Packets per acknowledgement: one per receive batch of 16, from where larger batches gain nothing. At most the window.
pub const ACK_EVERY: u32 = 16;
/// Most packets per acknowledgement.
pub const MAX_ACK_EVERY: u32 = 256;
/// Idle peers are asked this often; a dead one is known after the retries.
pub const KEEPALIVE: Duration = Duration::from_secs(1);
/// Shortest keepalive.
pub const MIN_KEEPALIVE: Duration = Duration::from_millis(10);
/// Longest keepalive.
pub const MAX_KEEPALIVE: Duration = Duration::from_secs(3600);
/// Silence after which a peer that something is wanted from is given up, in keepalive intervals: five signs of life asked for in vain
/// are no accident, and 5 s are above a daemon's restart and a spanning tree's short outage.
pub const PEER_TIMEOUT_PER_KEEPALIVE: u64 = 5;
/// Shortest time for giving up a peer: two of the shortest keepalive intervals.
pub const MIN_PEER_TIMEOUT: Duration = Duration::from_millis(20);
/// Longest time for giving up a peer: two of the longest keepalive intervals.
pub const MAX_PEER_TIMEOUT: Duration = Duration::from_secs(7200);
/// Answer to a connection message: the peer's application has to accept, so well above a round trip.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);
/// Shortest wait for an answer to a connection message.
pub const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(1);
/// Longest wait for an answer to a connection message.
pub const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts: one second in all.
pub const CONNECT_RETRIES: u8 = 10;
/// Most attempts.
pub const MAX_CONNECT_RETRIES: u8 = 100;
/// Queue pairs of the node.
pub const MAX_QPS: u32 = 4096;
/// Most queue pairs: a queue pair number has a slot of 16 bits, and slots 0 and 1 are InfiniBand's management numbers.
pub const LIMIT_QPS: u32 = 65_534;
/// Regions of the node.
pub const MAX_REGIONS: u32 = 16_384;
/// Most regions: a key has a slot of 16 bits.
pub const LIMIT_REGIONS: u32 = 1 << 16;
/// READs and atomics outstanding per queue pair, and answered at a time: what InfiniBand adapters usually answer
/// (`max_qp_rd_atom`). 16 READs of 64 KiB fill 10 Gbit/s for 0.8 ms, above one round trip between two daemons.
pub const MAX_READS: u8 = 16;
/// Most READs and atomics: the field of the connection message has 8 bits, and 0 would be none for ever.
pub const LIMIT_READS: u8 = u8::MAX;
/// Shared receive queues of the node: those of as many applications as may attach.
pub const MAX_SRQS: u32 = MAX_APPLICATIONS * MAX_SRQS_PER_APPLICATION;
/// Most shared receive queues: more than queue pairs have no user.
pub const LIMIT_SRQS: u32 = LIMIT_QPS;
/// Largest window in packets: that of the transport's bitmaps.
pub const MAX_BDP_CAP: u32 = WINDOW;
/// Round trip that the automatic window assumes before one is measured: two blocking daemons on busy cores (see the top).
pub const PATH_ROUND_TRIP: Duration = START_ROUND_TRIP;
/// Link rate to reckon with where the port has none configured.
pub const LINK_RATE: BitRate = BitRate::new(10_000_000_000).unwrap();

// ---- stop control
/// EtherType of control packets: the first of the range.
pub const STOP_ETHERTYPE: EtherType = EtherType::STOP;
/// Unit of timers: 255 of them, 2.55 ms, are above a round trip between two busy daemons.
pub const STOP_TICK: Duration = Duration::from_micros(10);
/// Shortest unit: what a sleeping thread cannot tell apart anyway.
pub const MIN_STOP_TICK: Duration = Duration::from_micros(1);
/// Longest unit: 255 of them are as long as one host may hold back another by default.
pub const MAX_STOP_TICK: Duration = Duration::from_millis(1);
/// Hosts remembered: those of one Ethernet segment.
pub const STOP_TABLE_SIZE: u32 = 4096;
/// Most hosts remembered: some 10 MiB.
pub const MAX_STOP_TABLE_SIZE: u32 = 1 << 16;
/// Highest priority of frames and control packets: everything but acknowledgements and control is below it.
pub const STOP_PRIORITY: u8 = CONTROL_PRIORITY;
/// Timer of a request and the preset, in ticks: 2 ms, so that a repetition after half of it is late by one busy round trip at most.
pub const STOP_TIMER: u8 = 200;
/// Rate in a request: none.
pub const STOP_RATE: u8 = 0;
/// Largest rate field.
pub const MAX_STOP_RATE: u8 = 15;
/// Longest random wait after a stop.
pub const MAX_RESUME_JITTER: Duration = Duration::from_millis(100);
/// Longest time for which one host may hold back another: 100 timers in a row; congestion that lasts longer is no burst.
pub const STOP_LONGEST: Duration = Duration::from_millis(200);
/// A stop lasts until the switch in front of the receiver has sent what it holds: so much at the most, at the rate of the link.
pub const STOP_LONGEST_BYTES: u64 = 4 << 20;
/// Allowed: from one default timer to what looks like an outage.
pub const STOP_LONGEST_RANGE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60));
/// Share of the time for which one host may hold back another in the long run, in thousandths: with 3% left, a sender is slow, not silent.
pub const STOP_BUDGET_PERMILLE: u32 = 970;
/// A host that held back another for too long is obeyed again after this silence: far above any gap between bursts.
pub const STOP_FORGIVE_AFTER: Duration = Duration::from_secs(1);
/// Longest such silence.
pub const MAX_STOP_FORGIVE_AFTER: Duration = Duration::from_secs(3600);
/// Share of the link from which its receiver counts it as full: what acknowledgements and gaps leave.
pub const DETECT_SHARE_PPM: u32 = 800_000;
/// Share of the link below which it is not full any more: half of that, so that a stopped sender among two ends nothing.
pub const RESOLVE_SHARE_PPM: u32 = 400_000;
/// Gap in bytes up to which frames are back to back (the source's example).
pub const DETECT_GAP: u64 = 5;
/// Gap in bytes from which they are not: one above the normal gap (the source's example).
pub const RESOLVE_GAP: u64 = 13;
/// Largest gap that makes sense: beyond this a link is idle.
pub const MAX_GAP: u64 = 1 << 20;
/// Periods in a row until the sign appears: one may be made by a batch that came late.
pub const DETECT_STAGES: u32 = 2;
/// Periods in a row until it is over. Each is time that the link is idle, but a switch in software may fall silent for one of
/// them with its queues full.
pub const RESOLVE_STAGES: u32 = 2;
/// Most periods in a row.
pub const MAX_DETECT_STAGES: u32 = 1000;
/// How finely arrivals can be told apart: a poll period, for drivers that hand over batches.
pub const GAP_RESOLUTION: Duration = POLL_PERIOD;
/// A busy receiver looks into its queue this often.
pub const POLL_PERIOD: Duration = Duration::from_micros(50);
/// Shortest monitoring period: four looks, as frames come through batches.
pub const MIN_DETECT_PERIOD: Duration = Duration::from_micros(200);
/// Longest monitoring period.
pub const MAX_DETECT_PERIOD: Duration = Duration::from_secs(1);
/// Full frames in a monitoring period, at least: with fewer, a full link has periods with less than the usual share. More make
/// the queue longer that builds up until the sign appears.
pub const FRAMES_PER_PERIOD: u64 = 4;
/// Bytes of a full frame's payload, unless the port has another MTU.
pub const FRAME_PAYLOAD: u64 = 1500;
/// Bytes that a frame takes on the wire besides: header 14, preamble, FCS and gap 24.
pub const FRAME_ON_WIRE_BESIDES: u64 = 38;
/// Periods are multiples of this.
pub const PERIOD_STEP: Duration = Duration::from_micros(10);
/// Shortest growth of delay that counts as a sign by default: ten times what wake-ups of the receiver cost.
pub const MIN_DELAY_SIGN: Duration = Duration::from_micros(500);

// ---- worker
/// Look for work this long before sleeping: about one wake-up (10 to 30 us), so that at most half is wasted.
pub const SPIN: Duration = Duration::from_micros(20);
/// Longest spin.
pub const MAX_SPIN: Duration = Duration::from_secs(1);
/// Frames per batch: beyond 16 the gain is small, at 64 none is left.
pub const BATCH: u32 = 64;
/// Largest batch: `UIO_MAXIOV`, the most that one sendmmsg takes.
pub const MAX_BATCH: u32 = 1024;
/// Frame buffers: 4096 full frames fill four virtual output queues.
pub const FRAMES: u32 = 4096;
/// Most frame buffers.
pub const MAX_FRAMES: u32 = 1 << 20;
/// Frame buffers per frame of a batch: one batch received, one queued, one being sent, one spare.
pub const FRAMES_PER_BATCH: u32 = 4;
/// Largest processor number: `CPU_SETSIZE` less one (sched_setaffinity(2)).
pub const MAX_CPU: u32 = 1023;

// ---- texts
/// Longest configuration file in bytes: room for 30,000 hosts with names.
pub const MAX_FILE: usize = 1 << 20;
