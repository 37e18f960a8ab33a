-- Supabase: triggers that count a sign-up once its user has confirmed the address.
-- docs/auth-hooks.md explains this file. It needs the extension pg_net, and two secrets of the
-- Vault: RISKGATE_URL, such as https://riskgate.example.com, and RISKGATE_KEY.
create schema riskgate;

create function riskgate.count_sign_up() returns trigger
language plpgsql security definer set search_path = '' as $$
begin
  -- pg_net sends the request after the transaction, so the user does not wait for the answer.
  perform net.http_post(
    url := (select decrypted_secret from vault.decrypted_secrets where name = 'RISKGATE_URL')
      || '/v1/assess',
    headers := jsonb_build_object(
      'Content-Type', 'application/json',
      'Authorization', 'Bearer '
        || (select decrypted_secret from vault.decrypted_secrets where name = 'RISKGATE_KEY')),
    body := jsonb_build_object('email', new.email, 'count', true));
  return null;
exception when others then
  -- A fault here must not keep the user from confirming the address.
  raise warning 'riskgate: a sign-up was not counted: %', sqlstate;
  return null;
end;
$$;

create trigger riskgate_count_confirmed
  after update of email_confirmed_at on auth.users for each row
  when (old.email_confirmed_at is null and new.email_confirmed_at is not null)
  execute function riskgate.count_sign_up();

-- A provider such as Google has confirmed the address already.
create trigger riskgate_count_created
  after insert on auth.users for each row
  when (new.email_confirmed_at is not null)
  execute function riskgate.count_sign_up();
