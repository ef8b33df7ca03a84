//! What an application has, and how much it may have.

use std::collections::HashMap;

use weft_config::model::Applications;
use weft_proto::transport::{CqId, QpNum, SrqId};

/// A share of the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) qps: u32,
    pub(crate) cqs: u32,
    pub(crate) srqs: u32,
    pub(crate) regions: u32,
    pub(crate) memory: u64,
}

/// A thing that has a cost as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Resource {
    Qp(QpNum),
    Cq(CqId),
    Srq(SrqId),
    Region(u32),
}

/// The account of one application.
#[derive(Debug, Default)]
pub(crate) struct Account {
    used: Cost,
    owned: HashMap<Resource, Cost>,
}

impl Account {
    pub(crate) const fn used(&self) -> Cost {
        self.used
    }

    /// Sets `cost` aside, or names the limit in its way.
    pub(crate) fn charge(&mut self, cost: Cost, limits: &Applications) -> Result<(), String> {
        let count = |has: u32, more: u32, limit: u32, key: &str| match has.checked_add(more).filter(|sum| *sum <= limit) {
            Some(sum) => Ok(sum),
            None => Err(format!("this application has {has} already, and applications.{key} allows {limit}")),
        };
        let qps = count(self.used.qps, cost.qps, limits.max_qps_per_application, "max_qps_per_application")?;
        let cqs = count(self.used.cqs, cost.cqs, limits.max_qps_per_application, "max_qps_per_application")?;
        let srqs = count(self.used.srqs, cost.srqs, limits.max_srqs_per_application, "max_srqs_per_application")?;
        let regions = count(self.used.regions, cost.regions, limits.max_regions_per_application, "max_regions_per_application")?;
        let memory =
            self.used.memory.checked_add(cost.memory).filter(|sum| *sum <= limits.max_memory_per_application).ok_or_else(|| {
                let (more, has, limit) = (cost.memory, self.used.memory, limits.max_memory_per_application);
                format!(
                    "{more} bytes more than the {has} that this application has; applications.max_memory_per_application allows {limit}"
                )
            })?;
        self.used = Cost { qps, cqs, srqs, regions, memory };
        Ok(())
    }

    /// Gives back what was charged.
    pub(crate) fn refund(&mut self, cost: Cost) {
        self.used.qps -= cost.qps;
        self.used.cqs -= cost.cqs;
        self.used.srqs -= cost.srqs;
        self.used.regions -= cost.regions;
        self.used.memory -= cost.memory;
    }

    /// What was charged has become a thing.
    pub(crate) fn keep(&mut self, resource: Resource, cost: Cost) {
        self.owned.insert(resource, cost);
    }

    /// The thing is no more.
    pub(crate) fn release(&mut self, resource: Resource) {
        if let Some(cost) = self.owned.remove(&resource) {
            self.refund(cost);
        }
    }
}
