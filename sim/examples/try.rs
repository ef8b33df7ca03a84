use weft_proto::{BitRate, Duration};
use weft_sim::incast::{Detection, Scene, Setting, run};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let get = |i: usize, d: u64| args.get(i).copied().unwrap_or(d);
    let mbit = get(0, 100);
    let detection = Detection { period: Duration::from_micros(get(1, 250)), detect: get(2, 4) as u32, resolve: get(3, 1) as u32, full: get(4,90), empty: get(5,60), timer: Duration::from_micros(get(6, 20_000)), jitter: Duration::from_micros(get(7,0)) };
    for two_stages in [false, true] {
        for setting in [Setting::Nothing, Setting::Pause, Setting::Stop, Setting::Rate] {
            let scene = Scene { setting, two_stages, rate: BitRate::megabits(mbit as u32), delay: Duration::from_micros(get(8,20)), buffer: get(9,64) << 10, detection, warm_up: Duration::from_millis(100), span: Duration::from_millis(get(10,500)) };
            let t = std::time::Instant::now();
            let r = run(&scene);
            println!("{:8} {} lost {:6} later {:6} hot {:6.1} util {:5.1}% v1 {:5.1}/{:5.1} {:5.1}% v2 {:5.1}% ctl {:6} p99 {:?} -> {:?} rtx {} [{:.1}s]", format!("{setting:?}"), if two_stages {2} else {1}, r.lost, r.lost_later, r.hot/1e6, r.utilisation, r.victims[0].beside/1e6, r.victims[0].alone/1e6, r.victims[0].left(), r.victims[1].left(), r.control_frames, r.latency[0].as_micros(), r.latency[1].as_micros(), r.retransmitted, t.elapsed().as_secs_f32());
        }
    }
}
