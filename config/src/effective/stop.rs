//! `stop` as a document. Hosts stand there with their addresses: names may mean others later.

use std::collections::BTreeMap;

use serde_yaml::{Mapping, Value};
use weft_proto::stop::config::{Accept, AskConfig, Criterion, DestinationPresets, Gap, ObeyConfig, Request, SecondSign, Targets};
use weft_proto::wire::MacAddr;

use super::{duration, ethertype, group};
use crate::model::{Detect, Stop, Threshold, Volume, VolumeCriterion, Words};
use crate::units;

pub(super) fn stop(stop: &Stop) -> Value {
    group([
        ("ethertype", ethertype(stop.ethertype)),
        ("priority", stop.priority.map_or_else(|| "none".into(), Value::from)),
        ("key_file", stop.key_file.as_ref().map_or_else(|| "none".into(), |path| path.to_string_lossy().into())),
        ("tick", duration(stop.tick)),
        ("rate_rule", stop.rate_rule.word().into()),
        ("table_size", stop.table_size.into()),
        ("ask", ask(&stop.ask)),
        ("obey", stop.obey.as_ref().map_or_else(|| "off".into(), obey)),
        ("destinations", destinations(stop)),
        ("detect", stop.detect.as_ref().map_or_else(|| "off".into(), detect)),
    ])
}

fn ask(ask: &AskConfig) -> Value {
    let targets = match &ask.targets {
        Targets::Contributing => "contributing".into(),
        Targets::Listed(hosts) => addresses(hosts),
    };
    let [priority, timer, rate] = request(&ask.request);
    group([("targets", targets), priority, timer, rate, ("assumed_timer", ask.preset_timer.into())])
}

fn request(request: &Request) -> [(&'static str, Value); 3] {
    [("priority", request.priority.into()), ("timer", request.timer.into()), ("rate", request.rate.into())]
}

fn obey(obey: &ObeyConfig) -> Value {
    let accept = match &obey.accept {
        Accept::Anyone => "anyone".into(),
        Accept::Listed(hosts) => addresses(hosts),
    };
    group([
        ("accept", accept),
        ("timer_rule", obey.timer_rule.word().into()),
        ("priority_rule", obey.priority_rule.word().into()),
        ("timer", obey.presets.timer.into()),
        ("priority", obey.presets.priority.into()),
        ("resume_jitter", duration(obey.resume_jitter)),
        ("longest", duration(obey.longest)),
        ("budget", permille(obey.budget_permille).into()),
        ("forgive_after", duration(obey.forgive_after)),
    ])
}

fn permille(parts: u32) -> String {
    format!("{}.{}%", parts / 10, parts % 10)
}

fn destinations(stop: &Stop) -> Value {
    let mut all: BTreeMap<MacAddr, Mapping> = BTreeMap::new();
    for (host, asked) in &stop.ask.requests {
        all.entry(*host).or_default().insert("ask".into(), group(request(asked)));
    }
    for (host, DestinationPresets { timer, priority }) in stop.obey.iter().flat_map(|obey| &obey.destinations) {
        let entry = all.entry(*host).or_default();
        for (key, value) in [("timer", timer), ("priority", priority)] {
            if let Some(value) = *value {
                entry.insert(key.into(), value.into());
            }
        }
    }
    Value::Mapping(all.into_iter().map(|(host, keys)| (host.to_string().into(), Value::Mapping(keys))).collect())
}

fn addresses(hosts: &[MacAddr]) -> Value {
    Value::Sequence(hosts.iter().map(|host| host.to_string().into()).collect())
}

fn detect(detect: &Detect) -> Value {
    let off = || Value::from("off");
    group([
        ("combine", detect.combine.word().into()),
        ("volume", detect.volume.as_ref().map_or_else(off, volume)),
        ("gap", detect.gap.as_ref().map_or_else(off, gap)),
        ("delimiter", off()),
        ("second_sign", second_sign(detect.second_sign)),
    ])
}

fn volume(volume: &Volume) -> Value {
    group([
        ("detect", volume_criterion(&volume.detect)),
        ("resolve", volume_criterion(&volume.resolve)),
        ("count", volume.counting.word().into()),
    ])
}

fn volume_criterion(criterion: &VolumeCriterion) -> Value {
    let threshold = match criterion.threshold {
        Threshold::Share(share) => ("share", share.to_string().into()),
        Threshold::Bytes(bytes) => ("bytes", units::bytes_text(bytes).into()),
    };
    group([threshold, ("period", duration(criterion.period)), ("stages", criterion.stages.into())])
}

fn gap(gap: &Gap) -> Value {
    group([
        ("detect", gap_criterion(&gap.detector.detect)),
        ("resolve", gap_criterion(&gap.detector.resolve)),
        ("resolution", duration(gap.resolution)),
    ])
}

fn gap_criterion(criterion: &Criterion) -> Value {
    let threshold = units::bytes_text(criterion.threshold).into();
    group([("bytes", threshold), ("period", duration(criterion.period)), ("stages", criterion.stages.into())])
}

fn second_sign(sign: SecondSign) -> Value {
    group([("sources", sign.sources.into()), ("delay", sign.delay.map_or_else(|| "off".into(), duration))])
}
