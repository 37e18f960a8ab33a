//! The Lua scripts that a server runs.

use redis::Pipeline;

use super::key_names::UNUSED_RING_KEY;

// Functions that several scripts share.
const RING: &str = include_str!("ring_common.lua");
const MOVES: &str = include_str!("move_common.lua");
const OVERRIDES_COMMON: &str = include_str!("overrides_common.lua");
const SIGN_UPS: &str = include_str!("sign_ups_common.lua");

/// A Lua script. If the server does not have the scripts, riskgate loads them. The number of a
/// variant is its index in `Redis::script_digests`.
#[derive(Clone, Copy)]
pub(super) enum Script {
    ReportLease,
    Probe,
    ReadRingState,
    ReadOverridesState,
    ChangeRing,
    AddKeys,
    EndImport,
    RotateKey,
    WriteBackLostRows,
    FillRing,
    MoveStaged,
    CreditTop,
    LowerMonth,
    SaveDnsFacts,
    RecordSourceState,
    RecordQuotaEvents,
    ClaimQuotaEvents,
    FinishQuotaEvent,
    KeepInboxSecret,
    AppendSignUps,
    DeleteSignUps,
    RecordChange,
    UpdateOverrides,
    TakeOverOverrides,
    ChargeRates,
    DeleteExpired,
}

/// The parts of the Lua source of each script, in the order of their declaration.
const SOURCES: [(Script, &[&str]); 26] = [
    (Script::ReportLease, &[include_str!("report_lease.lua")]),
    (Script::Probe, &[include_str!("probe.lua")]),
    (Script::ReadRingState, &[include_str!("read_ring_state.lua")]),
    (Script::ReadOverridesState, &[include_str!("read_overrides_state.lua")]),
    (Script::ChangeRing, &[RING, include_str!("change_ring.lua")]),
    (Script::AddKeys, &[RING, include_str!("add_keys.lua")]),
    (Script::EndImport, &[RING, include_str!("end_import.lua")]),
    (Script::RotateKey, &[RING, include_str!("rotate_key.lua")]),
    (Script::WriteBackLostRows, &[RING, include_str!("write_back_lost_rows.lua")]),
    (Script::FillRing, &[RING, MOVES, include_str!("fill_ring.lua")]),
    (Script::MoveStaged, &[MOVES, include_str!("move_staged.lua")]),
    (Script::CreditTop, &[include_str!("credit_top.lua")]),
    (Script::LowerMonth, &[RING, include_str!("lower_month.lua")]),
    (Script::SaveDnsFacts, &[include_str!("save_learned.lua")]),
    (Script::RecordSourceState, &[RING, include_str!("record_source_state.lua")]),
    (Script::RecordQuotaEvents, &[include_str!("record_quota_events.lua")]),
    (Script::ClaimQuotaEvents, &[include_str!("claim_quota_events.lua")]),
    (Script::FinishQuotaEvent, &[include_str!("finish_quota_event.lua")]),
    (Script::KeepInboxSecret, &[include_str!("keep_inbox_secret.lua")]),
    (Script::AppendSignUps, &[SIGN_UPS, include_str!("append_sign_ups.lua")]),
    (Script::DeleteSignUps, &[SIGN_UPS, include_str!("delete_sign_ups.lua")]),
    (Script::RecordChange, &[RING, include_str!("record_change.lua")]),
    (Script::UpdateOverrides, &[RING, OVERRIDES_COMMON, include_str!("update_overrides.lua")]),
    (Script::TakeOverOverrides, &[RING, OVERRIDES_COMMON, include_str!("take_over_overrides.lua")]),
    (Script::ChargeRates, &[include_str!("charge_rates.lua")]),
    (Script::DeleteExpired, &[include_str!("delete_expired.lua")]),
];

const _: () = {
    let mut number = 0;
    while number < SOURCES.len() {
        assert!(SOURCES[number].0 as usize == number);
        number += 1;
    }
};

impl Script {
    /// The Lua sources of all scripts, in the order of their declaration.
    pub(super) fn sources() -> impl Iterator<Item = String> {
        SOURCES.iter().map(|(_, parts)| parts.concat())
    }

    /// Adds the call of the script to a pipeline. Its arguments follow.
    pub(super) fn push_call(
        self,
        pipeline: &mut Pipeline,
        digests: &[String],
        redis_keys: &[&str],
    ) {
        let is_of_ring = SOURCES[self as usize].1[0] == RING;
        let unused_key = is_of_ring.then_some(UNUSED_RING_KEY);
        pipeline.cmd("EVALSHA").arg(&digests[self as usize]);
        pipeline.arg(redis_keys.len() + usize::from(is_of_ring)).arg(redis_keys).arg(unused_key);
    }
}
