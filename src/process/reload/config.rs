//! Reads the config again, and applies what may change while the process runs.

use std::sync::Arc;

use super::ReloadState;
use super::list_certificate_files;
use super::status_reporter::join_lines;
use crate::config::{Config, ConfigReading, EffectiveSettings};
use crate::gate::authz_rules::AuthzRules;

/// The most changed settings that the log names for a reload.
const MAX_LOGGED_CHANGES: usize = 10;

impl ReloadState {
    /// Reads the config again and applies it. If the config is faulty, returns the problem, and the
    /// last good config stays in force.
    pub(super) fn reload_config(&mut self) -> Option<String> {
        self.config_watch.mark_read();
        let ConfigReading { config, settings, faults, files, has_transient_fault } =
            Config::read_and_list_files(&self.config_sources);
        let problem = match config.filter(|_| faults.is_empty()) {
            Some(config) => {
                self.config_watch.set_paths(files);
                self.is_latest_config_in_force = true;
                let changes = self.replace_settings_and_describe(settings);
                self.apply_config(config);
                self.record_config();
                log::info!("config reloaded: {changes}");
                None
            }
            // The last good config stays in force, so its files stay watched beside the new ones.
            None => {
                self.is_latest_config_in_force = false;
                let known = self.config_watch.paths().to_vec();
                let new = files.into_iter().filter(|file| !known.contains(file));
                self.config_watch.set_paths(known.iter().cloned().chain(new).collect());
                Some(join_lines(&faults))
            }
        };
        self.config_watch.schedule_retry_if(has_transient_fault);
        self.status_reporter.record_part("config", problem.as_deref(), true);
        problem
    }

    /// Replaces the settings in force, and describes what has changed.
    fn replace_settings_and_describe(&mut self, new: Option<EffectiveSettings>) -> String {
        let old = std::mem::replace(&mut self.settings, new);
        let changes = match (old, &self.settings) {
            (Some(old), Some(new)) => {
                old.describe_changes(new, self.startup_settings.as_ref().unwrap_or(&old))
            }
            _ => return "the settings before are not known".to_owned(),
        };
        match changes.len().saturating_sub(MAX_LOGGED_CHANGES) {
            0 if changes.is_empty() => "no setting has changed".to_owned(),
            0 => changes.join("; "),
            more => format!("{}; and {more} more", changes[..MAX_LOGGED_CHANGES].join("; ")),
        }
    }

    /// Applies a new config. Reports the settings that need a restart, and does not apply them.
    fn apply_config(&mut self, config: Config) {
        self.inputs.next_startup.publish(config.startup);
        self.inputs.config.publish(config.reloadable.clone());
        let previous_config = std::mem::replace(&mut self.config, config.reloadable);
        self.report_settings_needing_restart();
        let config = &self.config;
        let mut rules = config.rules();
        if rules.authz.is_none() && self.inputs.startup.startup_rules.authz_path.is_some() {
            // Proxies still ask on the path that the config had at the start. Some proxies would
            // treat a 404 as a refusal.
            log::warn!("authz: the section is gone, so every proxy that asks gets 200 from now on");
            rules.authz = Some(Arc::new(AuthzRules::admit_all()));
        }
        self.gate_state.reloadable_rules.publish(rules);
        self.gate_state.ledger.set_on_failure(config.on_failure);
        self.gate_state.access_log.set_options(config.access_log.clone());
        if let Some(log) = &self.process_log {
            log.set_options(config.process_log.clone());
        }
        self.gate_state.top_domains.set_options(config.top_domains);
        let (plans, key_file) = (config.plans.clone(), config.key_file.clone());
        if config.table != previous_config.table {
            // The table's thread reports the outcome, so this thread does not wait for a reply.
            drop(self.table.request_rebuild(Some(config.table.clone())));
        }
        if config.feeds != previous_config.feeds {
            self.feeds.set_feeds(config.feeds.clone());
        }
        if config.dns != previous_config.dns {
            self.apply_dns_options();
        }
        if self.config.webhook != previous_config.webhook {
            self.apply_webhook_options();
        }
        if self.config.certificates != previous_config.certificates {
            self.certificate_watch.set_paths(list_certificate_files(&self.config));
            self.reload_certificates();
        }
        if plans != previous_config.plans {
            self.keys.apply_plans(&self.gate_state, &plans);
            self.report_keys_and_store(true);
        }
        if key_file != previous_config.key_file {
            self.keys.set_key_file(key_file);
            if self.keys.is_key_file_settled() {
                self.keys.reload_key_file(&self.gate_state, &plans);
                self.record_key_file();
            }
            self.report_keys_and_store(true);
        }
    }

    /// Applies the options of `[dns]`. If that needs a thread and none can be started, each pass
    /// tries again.
    pub(super) fn apply_dns_options(&mut self) {
        let started = self.dns.set_options(self.config.dns.clone());
        let is_pending = &mut self.pending_work.are_dns_options_unapplied;
        self.status_reporter.record_start("dns", "a thread for DNS queries", started, is_pending);
    }

    /// Applies the options of `[webhook]`. If that needs threads and one can't be started, each
    /// pass tries again.
    pub(super) fn apply_webhook_options(&mut self) {
        let started = self.webhooks.set_options(self.config.webhook.clone());
        let is_pending = &mut self.pending_work.are_webhook_options_unapplied;
        self.status_reporter.record_start("webhook", "threads for webhooks", started, is_pending);
    }

    /// Lists the settings that have changed since the start and take effect at the next restart.
    fn list_changed_startup_settings(&self) -> Vec<String> {
        let groups = self.inputs.startup.list_changes(&self.inputs.next_startup.peek());
        let named = match (&self.startup_settings, &self.settings) {
            (Some(old), Some(new)) => old.list_changed_at_start(new),
            _ => Vec::new(),
        };
        // A value that is only written in another way is no change.
        match groups.is_empty() || named.is_empty() {
            true => groups.into_iter().map(str::to_owned).collect(),
            false => named,
        }
    }

    /// Logs and reports the changed settings that take effect at the next restart.
    pub(super) fn report_settings_needing_restart(&self) {
        let mut settings = self.list_changed_startup_settings();
        if self.have_startup_files_changed {
            let files = self.inputs.startup.files_read_at_start();
            let names: Vec<&str> = files.into_iter().map(|(setting, _)| setting).collect();
            settings.push(format!("the file of {}", names.join(" or ")));
        }
        if !settings.is_empty() {
            log::warn!(
                "these settings changed and take effect at the next restart: {}",
                settings.join(", ")
            );
        }
        self.status_reporter.update(|status| status.needs_restart = settings);
    }
}
