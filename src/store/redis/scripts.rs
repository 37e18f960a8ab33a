//! The Lua scripts that a server runs.

/// A Lua script. If the server does not have the scripts, riskgate loads them. The number of a
/// variant is its index in `Redis::script_digests`.
#[derive(Clone, Copy)]
pub(super) enum Script {
    ReportLease,
    Probe,
    ChangeRing,
    AddKeys,
    EndImport,
    RotateKey,
    RestoreRows,
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

impl Script {
    /// All scripts, in the order of their declaration.
    pub(super) const ALL: [Script; 24] = [
        Script::ReportLease,
        Script::Probe,
        Script::ChangeRing,
        Script::AddKeys,
        Script::EndImport,
        Script::RotateKey,
        Script::RestoreRows,
        Script::FillRing,
        Script::MoveStaged,
        Script::CreditTop,
        Script::LowerMonth,
        Script::SaveDnsFacts,
        Script::RecordSourceState,
        Script::RecordQuotaEvents,
        Script::ClaimQuotaEvents,
        Script::FinishQuotaEvent,
        Script::KeepInboxSecret,
        Script::AppendSignUps,
        Script::DeleteSignUps,
        Script::RecordChange,
        Script::UpdateOverrides,
        Script::TakeOverOverrides,
        Script::ChargeRates,
        Script::DeleteExpired,
    ];

    /// The Lua source, with the shared functions in front if the script needs them.
    pub(super) const fn source(self) -> &'static str {
        match self {
            Script::ReportLease => include_str!("report_lease.lua"),
            Script::Probe => include_str!("probe.lua"),
            Script::ChangeRing => {
                concat!(include_str!("ring_common.lua"), include_str!("change_ring.lua"))
            }
            Script::AddKeys => {
                concat!(include_str!("ring_common.lua"), include_str!("add_keys.lua"))
            }
            Script::EndImport => {
                concat!(include_str!("ring_common.lua"), include_str!("end_import.lua"))
            }
            Script::RestoreRows => {
                concat!(include_str!("ring_common.lua"), include_str!("restore_rows.lua"))
            }
            Script::FillRing => concat!(
                include_str!("ring_common.lua"),
                include_str!("move_common.lua"),
                include_str!("fill_ring.lua")
            ),
            Script::MoveStaged => {
                concat!(include_str!("move_common.lua"), include_str!("move_staged.lua"))
            }
            Script::RotateKey => {
                concat!(include_str!("ring_common.lua"), include_str!("rotate_key.lua"))
            }
            Script::CreditTop => include_str!("credit_top.lua"),
            Script::LowerMonth => {
                concat!(include_str!("ring_common.lua"), include_str!("lower_month.lua"))
            }
            Script::RecordSourceState => {
                concat!(include_str!("ring_common.lua"), include_str!("record_source_state.lua"))
            }
            Script::SaveDnsFacts => include_str!("save_learned.lua"),
            Script::RecordQuotaEvents => include_str!("record_quota_events.lua"),
            Script::ClaimQuotaEvents => include_str!("claim_quota_events.lua"),
            Script::FinishQuotaEvent => include_str!("finish_quota_event.lua"),
            Script::KeepInboxSecret => include_str!("keep_inbox_secret.lua"),
            Script::AppendSignUps => include_str!("append_sign_ups.lua"),
            Script::DeleteSignUps => include_str!("delete_sign_ups.lua"),
            Script::RecordChange => {
                concat!(include_str!("ring_common.lua"), include_str!("record_change.lua"))
            }
            Script::ChargeRates => include_str!("charge_rates.lua"),
            Script::DeleteExpired => include_str!("delete_expired.lua"),
            Script::UpdateOverrides => concat!(
                include_str!("ring_common.lua"),
                include_str!("overrides_common.lua"),
                include_str!("update_overrides.lua")
            ),
            Script::TakeOverOverrides => concat!(
                include_str!("ring_common.lua"),
                include_str!("overrides_common.lua"),
                include_str!("take_over_overrides.lua")
            ),
        }
    }
}
