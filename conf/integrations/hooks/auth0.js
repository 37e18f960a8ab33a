// Auth0: an Action of the trigger "Pre User Registration". docs/auth-hooks.md explains this file.
// Secrets of the Action: RISKGATE_URL, such as https://riskgate.example.com, and RISKGATE_KEY.
exports.onExecutePreUserRegistration = async (event, api) => {
  const decision = await fetch(`${event.secrets.RISKGATE_URL}/v1/assess`, {
    method: "POST",
    headers: { Authorization: `Bearer ${event.secrets.RISKGATE_KEY}` },
    body: JSON.stringify({ email: event.user.email, ip: event.request.ip, count: true }),
    signal: AbortSignal.timeout(1000),
  }).then((answer) => {
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    return answer.json();
  }).catch((error) => {
    console.error(`riskgate: no decision: ${error.message}`);
    return {};
  });
  // Without an answer of riskgate there is no action, and the user passes.
  if (decision.action === "block") {
    api.access.deny(decision.rule ?? "score", "Please use another e-mail address.");
  }
  if (decision.action === "review") api.user.setAppMetadata("review", decision.rule);
};
