//! Numbers for Prometheus: a collector over the worker's snapshot, and the HTTP server that shows it.
//!
//! Nothing is counted here: every scrape reads the [`Board`] once. The module never talks to the worker.

mod catalogue;
mod http;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Registry, TextEncoder};

pub use catalogue::{CATALOGUE, Family, Kind, page};
pub use server::{Server, ServerError};

use crate::snapshot::{Board, Snapshot};

/// The daemon's metrics, read from the board at each scrape.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// A registry that shows `board`.
    ///
    /// # Errors
    /// If the catalogue holds an invalid or doubled name, which the tests exclude.
    pub fn new(board: Arc<Board>) -> prometheus::Result<Self> {
        let registry = Registry::new();
        registry.register(Box::new(BoardCollector { descriptions: descriptions()?, board }))?;
        Ok(Self { registry })
    }

    /// The Prometheus text of this moment.
    ///
    /// # Errors
    /// If a family cannot be encoded.
    pub fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

struct BoardCollector {
    descriptions: Vec<Desc>,
    board: Arc<Board>,
}

impl Collector for BoardCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let snapshot = self.board.read();
        CATALOGUE.iter().map(|family| family_of(family, &snapshot)).collect()
    }
}

fn descriptions() -> prometheus::Result<Vec<Desc>> {
    let labels = |family: &Family| family.labels.iter().map(|&label| label.to_owned()).collect();
    CATALOGUE.iter().map(|family| Desc::new(family.name.to_owned(), family.help.to_owned(), labels(family), Default::default())).collect()
}

fn family_of(family: &Family, snapshot: &Snapshot) -> MetricFamily {
    let mut samples = catalogue::Samples::default();
    (family.sample)(snapshot, &mut samples);
    let mut out = MetricFamily::default();
    out.set_name(family.name.to_owned());
    out.set_help(family.help.to_owned());
    out.set_field_type(match family.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
    });
    out.set_metric(samples.0.into_iter().map(|(values, value)| metric(family, values, value)).collect());
    out
}

fn metric(family: &Family, values: Vec<String>, value: f64) -> Metric {
    let mut metric = Metric::from_label(family.labels.iter().zip(values).map(|(&name, value)| label(name, value)).collect());
    match family.kind {
        Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
        Kind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
    }
    metric
}

fn label(name: &str, value: String) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value);
    pair
}
