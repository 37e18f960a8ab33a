// Amazon Cognito: a Lambda function (Node.js) for the trigger "Post confirmation". It counts a
// sign-up once its user has confirmed the address. docs/auth-hooks.md explains this file. Its
// environment: RISKGATE_URL, such as https://riskgate.example.com, and RISKGATE_KEY.
exports.handler = async (event) => {
  // The trigger also runs after a forgotten password.
  if (event.triggerSource !== "PostConfirmation_ConfirmSignUp") return event;
  // Whatever the answer is, the user is confirmed.
  await fetch(`${process.env.RISKGATE_URL}/v1/assess`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env.RISKGATE_KEY}` },
    body: JSON.stringify({ email: event.request.userAttributes.email, count: true }),
    signal: AbortSignal.timeout(1000),
  }).then((answer) => {
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
  }).catch((error) => console.error(`riskgate: a sign-up was not counted: ${error.message}`));
  return event;
};
