//! What the operator's configuration means to the core: values only, nothing is opened or started.

use weft_config::Config;
use weft_config::defaults::LINK_RATE;
use weft_config::model::{self, Congestion, Detect, Impairment as Faults, Port, Role, VolumeCriterion};
use weft_proto::BitRate;
use weft_proto::stop::StopConfig;
use weft_proto::stop::config::{Criterion, Detector, Volume, WatchConfig};
use weft_proto::switch::{CLASSES_MAX, Impairment, Marking, PortConfig, PortRole, SwitchConfig, Vlans};
use weft_proto::transport::EndpointConfig;
use weft_proto::transport::congestion::Settings as CongestionSettings;
use weft_proto::wire::{EtherType, MacAddr, StopKey};

use crate::app::session::Settings;

/// Settings of the switch.
pub fn switch(config: &Config) -> SwitchConfig {
    let given = &config.switch;
    let mut weights = [1; CLASSES_MAX];
    weights.iter_mut().zip(&given.weights).for_each(|(weight, &value)| *weight = value);
    SwitchConfig {
        mac_table_size: size(given.mac_table_size),
        mac_ageing: given.mac_ageing,
        voq_limit_bytes: given.voq_limit,
        classes: u8::try_from(given.classes()).unwrap_or(u8::MAX),
        weights,
        quantum: given.quantum,
        strict: given.strict_classes,
        control: Some(config.stop.as_ref().map_or(EtherType::STOP, |stop| stop.ethertype)),
        flow: given.flow_control,
        marking: given.marking.map(|marking| Marking {
            ethertype: config.transport.ethertype,
            kmin: marking.kmin,
            kmax: marking.kmax,
            pmax_ppm: marking.pmax.parts_per_million(),
        }),
        frames: size(config.worker.frames),
    }
}

/// Settings of a port of the switch whose interface has the address `mac` and carries payloads of `interface_mtu` bytes.
pub fn port(config: &Port, interface_mtu: usize, mac: MacAddr) -> PortConfig {
    PortConfig {
        role: match config.role {
            Role::Host => PortRole::Host,
            Role::Switch => PortRole::Switch,
        },
        rate: config.rate,
        mtu: mtu(config, interface_mtu),
        impair_ingress: impairment(&config.impair.ingress),
        impair_egress: impairment(&config.impair.egress),
        vlans: config.vlans.as_deref().map_or(Vlans::ALL, Vlans::of),
        flow_control: config.flow_control,
        link_rate: LINK_RATE,
        mac,
        seed: Some(config.impair.seed),
    }
}

/// The MTU that a port uses: the configured one, but never more than the interface carries.
pub fn mtu(config: &Port, interface_mtu: usize) -> usize {
    config.mtu.map_or(interface_mtu, size).min(interface_mtu)
}

/// Settings of the local transport, which has the address and the MTU of its host port; `started` in milliseconds of the wall clock.
pub fn endpoint(config: &Config, mac: MacAddr, mtu: usize, started: u64) -> EndpointConfig {
    let given = &config.transport;
    EndpointConfig {
        mac,
        ethertype: given.ethertype,
        priority: given.priority,
        mtu,
        recovery: given.recovery,
        bdp_cap: given.bdp_cap.on_link(config.link_rate()),
        started,
        congestion: congestion(&given.congestion, config.link_rate()),
        rto_low: given.rto_low,
        rto_high: given.rto_high,
        retry_count: given.retry_count,
        rnr_retry: given.rnr_retry,
        rnr_delay: given.rnr_delay,
        ack_delay: given.ack_delay,
        ack_every: given.ack_every,
        keepalive: given.keepalive,
        peer_timeout: given.peer_timeout,
        paths: given.paths,
        connect_timeout: given.connect_timeout,
        connect_retries: given.connect_retries,
        max_reads: given.max_reads,
        max_qps: given.max_qps,
        max_srqs: given.max_srqs,
        max_regions: given.max_regions,
    }
}

fn congestion(given: &Congestion, rate: BitRate) -> CongestionSettings {
    CongestionSettings {
        first_window: given.first_window,
        queueing_delay: given.queueing_delay,
        flow_scaling: given.flow_scaling,
        timely_low: given.timely_low,
        timely_high: given.timely_high,
        notification_interval: given.notification_interval,
        min_rate: given.min_rate,
        ..CongestionSettings::new(given.algorithm, rate)
    }
}

/// EtherTypes of the frames that a host port takes; MAC control frames ask the port itself for something.
pub fn host_ethertypes(transport: EtherType, stop: Option<EtherType>) -> Vec<u16> {
    [Some(transport), Some(EtherType::MAC_CONTROL), stop].into_iter().flatten().map(|ethertype| ethertype.0).collect()
}

/// Settings of stop control, which has the address of the local transport; `started` in milliseconds of the wall clock.
pub fn stop(config: &Config, mac: MacAddr, started: u64, key: Option<StopKey>) -> Option<StopConfig> {
    let given = config.stop.as_ref()?;
    let line_rate = config.link_rate();
    Some(StopConfig {
        mac,
        ethertype: given.ethertype,
        transport: config.transport.ethertype,
        priority: given.priority,
        key,
        started,
        tick: given.tick,
        rate_rule: given.rate_rule,
        line_rate,
        table_size: given.table_size,
        ask: given.ask.clone(),
        obey: given.obey.clone(),
        watch: given.detect.as_ref().map(|detect| watch(detect, line_rate)),
    })
}

fn watch(detect: &Detect, rate: BitRate) -> WatchConfig {
    let criterion = |given: &VolumeCriterion| Criterion { threshold: given.bytes_on(rate), period: given.period, stages: given.stages };
    let volume = |given: model::Volume| Volume {
        detector: Detector { detect: criterion(&given.detect), resolve: criterion(&given.resolve) },
        counting: given.counting,
    };
    WatchConfig {
        volume: detect.volume.map(volume),
        gap: detect.gap,
        // No Linux socket shows preambles.
        delimiter: None,
        combine: detect.combine,
        second_sign: detect.second_sign,
    }
}

/// What the applications' server needs to know; `mac` is the local transport's address.
pub fn applications(config: &Config, mac: Option<MacAddr>) -> Settings {
    Settings { applications: config.applications.clone(), mac, hosts: config.hosts.clone() }
}

fn impairment(faults: &Faults) -> Impairment {
    if faults.is_none() {
        return Impairment::NONE;
    }
    Impairment {
        loss_ppm: faults.loss.parts_per_million(),
        duplicate_ppm: faults.duplicate.parts_per_million(),
        corrupt_ppm: faults.corrupt.parts_per_million(),
        reorder_ppm: faults.reorder.parts_per_million(),
        reorder_delay: faults.reorder_delay,
        delay: faults.delay,
        jitter: faults.jitter,
    }
}

/// A configured number as a size, which has at least 32 bits on every Linux that runs this.
pub const fn size(value: u32) -> usize {
    value as usize
}
