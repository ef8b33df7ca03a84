//! Shared receive queues in hostile hands.
