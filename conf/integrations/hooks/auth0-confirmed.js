// Auth0: an Action of the trigger "Post Login". It counts a sign-up once its user has confirmed the
// address. docs/auth-hooks.md explains this file. Secrets of the Action: RISKGATE_URL, such as
// https://riskgate.example.com, and RISKGATE_KEY.
const DAY_MS = 24 * 60 * 60 * 1000;

exports.onExecutePostLogin = async (event, api) => {
  const { email, email_verified, created_at, app_metadata } = event.user;
  // Users who signed up before this Action existed are no new sign-ups.
  const isNew = Date.now() - Date.parse(created_at) < 30 * DAY_MS;
  if (!email_verified || !isNew || app_metadata.sign_up_counted) return;
  const isCounted = await fetch(`${event.secrets.RISKGATE_URL}/v1/assess`, {
    method: "POST",
    headers: { Authorization: `Bearer ${event.secrets.RISKGATE_KEY}` },
    body: JSON.stringify({ email, ip: event.request.ip, count: true }),
    signal: AbortSignal.timeout(1000),
  }).then((answer) => {
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    return true;
  }).catch((error) => {
    console.error(`riskgate: a sign-up was not counted: ${error.message}`);
    return false;
  });
  // Without an answer, the next login counts the sign-up.
  if (isCounted) api.user.setAppMetadata("sign_up_counted", true);
};
