-- Gives a Redis key that a copy has staged its final name: a step of the operation
-- `fill_empty_store` on a Cluster, for each Redis key outside the slot of the keys.
--
-- KEYS 1 the staged Redis key, 2 the Redis key of the final name
-- ARGV 1 what to do if the server has a Redis key of the final name, 2 after how many seconds it
--      expires (0: never)
-- Returns 1, or 0 if the server has a Redis key of the final name and the copy must fail.

if redis.call('EXISTS', KEYS[1]) == 0 then
    return redis.error_reply('LOST a part of the copy before it was complete')
end
if ARGV[1] == 'fail' and redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
move_staged_key(KEYS[1], ARGV[1], ARGV[2], KEYS[2])
return 1
