-- What follows is the same on every site; `settings` and `site` above are what differs.
--
-- slurmctld calls these functions while it holds its locks, so everything here is bounded: one deadline for all that a
-- submission waits for, a breaker for an advisor that does not answer, and no name is ever resolved. Whatever goes wrong,
-- the job is accepted as it came.

local berth = {}

local have_core, core = pcall(require, "socket.core")
local have_unix, unix = pcall(require, "socket.unix")
local now = have_core and core.gettime or os.time

local LONGEST_ANSWER = 4096 -- bytes, headers included; an answer has about 400
local LONGEST_TEXT = 256 -- bytes of any text of a job that is sent
local LEAST_WAIT = 0.0005 -- seconds; with less left nothing is begun

-- Breakers ------------------------------------------------------------------------------------------------------------

-- A breaker counts failures in a row. Open, it lets nobody through; once its rest is over it lets one probe through, and
-- the probe's outcome closes it or begins a rest twice as long. slurmctld calls from one thread at a time.
local function new_breaker(name)
   return { name = name, failures = 0, opened = nil, rest = settings.rest }
end

function berth.admits(breaker, at)
   if not breaker.opened then
      return true
   end
   -- A clock that was set back must not keep a breaker open for ever.
   return at - breaker.opened >= breaker.rest or at < breaker.opened
end

function berth.succeed(breaker)
   if breaker.opened then
      slurm.log_info("%s", "advisor: " .. breaker.name .. " answers again")
   end
   breaker.failures, breaker.opened, breaker.rest = 0, nil, settings.rest
end

function berth.fail(breaker, at, why)
   breaker.failures = breaker.failures + 1
   if breaker.opened then
      breaker.opened, breaker.rest = at, math.min(breaker.rest * 2, settings.longest_rest)
   elseif breaker.failures >= settings.failures then
      breaker.opened = at
      slurm.log_error("%s", string.format("advisor: %s failed %d times (%s); jobs go without advice, next try in %g s",
         breaker.name, breaker.failures, why, breaker.rest))
   end
end

-- JSON ----------------------------------------------------------------------------------------------------------------

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function escape(c)
   return escapes[c] or string.format("\\u%04x", string.byte(c))
end

-- utf8_length gives the length of the sequence that begins at i, or nil where there is no whole and valid one.
local function utf8_length(s, i)
   local a, b, c, d = string.byte(s, i, i + 3)
   local function tail(x) return x and x >= 0x80 and x <= 0xBF end
   if a < 0x80 then
      return 1
   elseif a >= 0xC2 and a <= 0xDF then
      return tail(b) and 2 or nil
   elseif a >= 0xE0 and a <= 0xEF then
      if not (tail(b) and tail(c)) or (a == 0xE0 and b < 0xA0) or (a == 0xED and b > 0x9F) then
         return nil
      end
      return 3
   elseif a >= 0xF0 and a <= 0xF4 then
      if not (tail(b) and tail(c) and tail(d)) or (a == 0xF0 and b < 0x90) or (a == 0xF4 and b > 0x8F) then
         return nil
      end
      return 4
   end
   return nil
end

-- quote writes a text as a JSON string: cut to LONGEST_TEXT bytes, and with what is not UTF-8 replaced.
function berth.quote(s)
   s = string.sub(s, 1, LONGEST_TEXT)
   if string.find(s, "[\128-\255]") then
      local parts, i = {}, 1
      while i <= #s do
         local n = utf8_length(s, i)
         parts[#parts + 1] = n and string.sub(s, i, i + n - 1) or "\239\191\189" -- U+FFFD
         i = i + (n or 1)
      end
      s = table.concat(parts)
   end
   return '"' .. string.gsub(s, '[%z\1-\31"\\\127]', escape) .. '"'
end

-- decode reads one flat JSON object of short plain strings, decimal numbers, booleans and nulls: all that an answer may be. It
-- returns a table, without the nulls, or nil and what is wrong. Nothing in an answer is ever run as Lua.
function berth.decode(text)
   local object, at = {}, 1
   local function take(pattern)
      local from, to, what = string.find(text, "^" .. pattern, at)
      if from then
         at = to + 1
         return what or ""
      end
   end
   local function number()
      local start = at
      if not (take("%-?0()") or take("%-?[1-9]%d*()")) then
         return nil
      end
      if string.find(text, "^%.", at) and not take("%.%d+()") then
         return nil
      end
      return at - start <= 24 and tonumber(string.sub(text, start, at - 1)) or nil
   end
   local function value()
      local s = take('"([%w _.:/@%+%-]*)"')
      if s then return #s <= 200 and s or nil end
      if take("true()") then return true end
      if take("false()") then return false, true end
      if take("null()") then return nil, true end
      return number()
   end
   local seen = {}
   take("[ \t\r\n]*")
   if not take("{") then return nil, "not an object" end
   take("[ \t\r\n]*")
   local more = not take("}")
   while more do
      local key = take('"([a-z_]+)"')
      if not key then return nil, "a key is missing at byte " .. at end
      if seen[key] then return nil, "key " .. key .. " is there twice" end
      seen[key] = true
      if not take("[ \t\r\n]*:[ \t\r\n]*") then return nil, "no value at byte " .. at end
      local v, is = value()
      if v == nil and not is then return nil, "no plain value at byte " .. at end
      object[key] = v
      take("[ \t\r\n]*")
      if take("}") then
         more = false
      elseif not take(",[ \t\r\n]*") then
         return nil, "no end at byte " .. at
      end
   end
   take("[ \t\r\n]*")
   if at <= #text then return nil, "more than one value" end
   return object
end

-- The job -------------------------------------------------------------------------------------------------------------

-- Slurm writes "not set" and "no limit" as the two largest numbers of a field's width; fields are 16, 32 or 64 bits wide.
local function set_number(v, width)
   return type(v) == "number" and v >= 0 and v < 2 ^ width - 2 and v < 2 ^ 53
end

local texts = {
   { "name", "name" }, { "partition", "partition" }, { "account", "account" }, { "default_account", "default_account" },
   { "qos", "qos" }, { "array", "array_inx" }, { "features", "features" }, { "tres_per_job", "tres_per_job" },
   { "tres_per_node", "tres_per_node" }, { "tres_per_socket", "tres_per_socket" }, { "tres_per_task", "tres_per_task" },
   { "reservation", "reservation" }, { "dependency", "dependency" }, { "nodelist", "req_nodes" },
}

local numbers = { -- what it is called, the field, its bits
   { "user_id", "user_id", 32 }, { "limit_minutes", "time_limit", 32 }, { "cpus", "min_cpus", 32 },
   { "nodes", "min_nodes", 32 }, { "max_nodes", "max_nodes", 32 }, { "tasks", "num_tasks", 32 },
   { "cpus_per_task", "cpus_per_task", 16 }, { "memory_mib", "min_mem_per_node", 53 },
   { "memory_per_cpu_mib", "min_mem_per_cpu", 53 }, { "het_offset", "het_job_offset", 32 }, { "begin", "begin_time", 53 },
}

-- encode writes the job as POST /decide takes it.
function berth.encode(job)
   local parts = {}
   for _, t in ipairs(texts) do
      local v = job[t[2]]
      if type(v) == "string" and v ~= "" then
         parts[#parts + 1] = '"' .. t[1] .. '":' .. berth.quote(v)
      end
   end
   for _, n in ipairs(numbers) do
      local v = job[n[2]]
      if set_number(v, n[3]) then
         parts[#parts + 1] = string.format('"%s":%.0f', n[1], v)
      end
   end
   return "{" .. table.concat(parts, ",") .. "}"
end

-- chosen says that somebody chose a nice or a site factor. slurmctld keeps both with an offset of 2^31 and "not set" as
-- 2^32 - 2; it gives nice with the offset and site factor without.
local unchosen = { [0] = true, [2147483648] = true, [4294967294] = true, [2147483646] = true }
local function chosen(v)
   return type(v) == "number" and not unchosen[v]
end

-- untouchable says why a job's priority is not the advisor's to change: a person has set it.
function berth.untouchable(job)
   if job.priority == 0 then return "held" end
   if set_number(job.priority, 32) then return "priority set" end
   if chosen(job.nice) then return "nice set" end
   if chosen(job.site_factor) then return "site factor set" end
   return nil
end

-- Asking --------------------------------------------------------------------------------------------------------------

local breakers = { socket = new_breaker("sidecar"), service = new_breaker("service") }
berth.breakers = breakers

-- service_address reads where the service is: "ADDRESS PORT TOKEN", kept up to date by the sidecar, because a name looked
-- up here could hold slurmctld for seconds. Read again at most every few seconds; a missing file means no service.
local known = { read = nil }
local function service_address(at)
   if known.read and at >= known.read and at - known.read < settings.rest then
      return known.address, known.port, known.token
   end
   known = { read = at }
   local file = io.open(settings.service, "r")
   if file then
      local line = file:read(512) or ""
      file:close()
      local address, port, token = string.match(line, "^([%x.:]+) (%d+) ([%w_.=+/-]+)\n$")
      if address and tonumber(port) <= 65535 then
         known.address, known.port, known.token = address, tonumber(port), token
      end
   end
   return known.address, known.port, known.token
end

-- exchange sends a request and returns the body of the answer, or nil and why not. Every step gets what the deadline
-- leaves; the number of steps is fixed, and the answer's length is.
local function exchange(sock, connect, request, deadline)
   local function left()
      -- Not more than the whole, whatever happens to the clock meanwhile.
      local seconds = math.min(deadline - now(), settings.deadline)
      if seconds < LEAST_WAIT then return false end
      sock:settimeout(seconds, "t")
      return true
   end
   if not left() then return nil, "deadline" end
   local ok, err = connect(sock)
   if not ok then return nil, err end
   if not left() then return nil, "deadline" end
   local sent
   sent, err = sock:send(request)
   if sent ~= #request then return nil, err or "short write" end
   if not left() then return nil, "deadline" end
   -- The service closes after its answer, so that one bounded read gets all of it.
   local whole, why, part = sock:receive(LONGEST_ANSWER + 1)
   if whole then return nil, "answer too long" end
   if why ~= "closed" then return nil, why end
   local head, body = string.match(part or "", "^(HTTP/1%.[01] .-)\r\n\r\n(.*)$")
   if not head then return nil, "not HTTP" end
   local status = string.match(head, "^HTTP/1%.[01] (%d%d%d)[ \r]")
   if status ~= "200" then return nil, "status " .. (status or "unreadable") end
   local length = string.match(string.lower(head), "\r\ncontent%-length: *(%d+)")
   if tonumber(length) ~= #body then return nil, "answer cut off" end
   return body
end

-- reason makes a short word of an error, for the log.
local function reason(err)
   return string.sub(string.gsub(tostring(err), "[^%w _.:-]", "?"), 1, 80)
end

-- try asks one endpoint, through its breaker.
local function try(breaker, make, connect, request, deadline)
   local sock = make()
   if not sock then return nil, "no socket" end
   local called, body, err = pcall(exchange, sock, connect, request, deadline)
   pcall(sock.close, sock)
   local answer
   if called and body then
      answer, err = berth.decode(body)
      if answer and (type(answer.boost) ~= "number" or type(answer.mode) ~= "string") then
         answer, err = nil, "no boost or no mode"
      end
   elseif not called then
      err = body
   end
   if answer then
      berth.succeed(breaker)
      return answer
   end
   err = reason(err)
   berth.fail(breaker, now(), err)
   return nil, err
end

local function make_unix() return (type(unix) == "table" and (unix.stream or unix.tcp) or unix)() end
local function make_tcp() return core.tcp() end

-- silent says that every endpoint is left alone at the moment, so that not even the question has to be written.
function berth.silent(at)
   return not (have_unix and settings.socket ~= "" and berth.admits(breakers.socket, at)) and
      not (settings.service ~= "" and berth.admits(breakers.service, at) and service_address(at))
end

-- ask asks the sidecar, and the service if the sidecar failed fast enough.
function berth.ask(body, started)
   local deadline = started + settings.deadline
   local why = "no time left"
   local function request(authorization)
      return "POST /decide HTTP/1.1\r\nHost: advisor\r\nConnection: close\r\nContent-Type: application/json\r\n" ..
         authorization .. "Content-Length: " .. #body .. "\r\n\r\n" .. body
   end
   if have_unix and settings.socket ~= "" and berth.admits(breakers.socket, started) then
      local answer, err = try(breakers.socket, make_unix,
         function(s) return s:connect(settings.socket) end, request(""), deadline)
      if answer then return answer end
      why = err
   end
   if settings.service ~= "" and deadline - now() > LEAST_WAIT and berth.admits(breakers.service, started) then
      local address, port, token = service_address(started)
      if address then
         local answer, err = try(breakers.service, make_tcp,
            function(s) return s:connect(address, port) end, request("Authorization: Bearer " .. token .. "\r\n"), deadline)
         if answer then return answer end
         why = err
      end
   end
   return nil, why
end

-- Submission ----------------------------------------------------------------------------------------------------------

-- clamp makes a whole boost within bounds of any number. The advisor raises priorities and never lowers one.
function berth.clamp(boost)
   if boost ~= boost or boost <= 0 then return 0 end
   return math.floor(math.min(boost, settings.max_boost))
end

-- apply writes a boost to the job: to the site factor, which adds to the other factors (a set priority would freeze them).
function berth.apply(job, answer, milliseconds)
   local boost = berth.clamp(answer.boost)
   if boost == 0 then return 0 end
   job.site_factor = boost
   local note = string.format("advisor: boost=%d value=%s checkpoint=%s took=%.2fms", boost,
      type(answer.value) == "number" and string.format("%.4g", answer.value) or "-",
      type(answer.checkpoint) == "string" and answer.checkpoint or "-", milliseconds)
   local before = job.admin_comment
   if type(before) == "string" and before ~= "" then
      note = before .. "; " .. note
   end
   job.admin_comment = note
   return boost
end

-- leave_alone tells the ranker, which comes to the job while it waits, that the job's priority is a person's. A job that was
-- held gets its priority back by its release.
function berth.leave_alone(job, before, why)
   if not settings.rerank then return end
   local note = "advisor: left alone (" .. why .. ")"
   if type(before) == "string" and before ~= "" then
      if string.find(before, note, 1, true) then return end
      note = before .. "; " .. note
   end
   job.admin_comment = note
end

function berth.advise(job)
   if settings.mode ~= "shadow" and settings.mode ~= "live" then return end
   local started = now()
   local untouchable = berth.untouchable(job)
   local answer, why
   if not untouchable and have_core then
      if berth.silent(started) then
         why = "no endpoint to ask"
      else
         answer, why = berth.ask(berth.encode(job), started)
      end
   end
   local milliseconds = (now() - started) * 1000
   if untouchable and untouchable ~= "held" then
      berth.leave_alone(job, job.admin_comment, untouchable)
   end
   if not answer then
      slurm.log_debug("%s", string.format("advisor: none (%s) took=%.3fms", untouchable or why or "LuaSocket is missing", milliseconds))
      return
   end
   local boost = 0
   -- Both must be live: what was rendered, and the advisor, which may have demoted itself.
   if settings.mode == "live" and answer.mode == "live" and answer.abstain == nil then
      boost = berth.apply(job, answer, milliseconds)
   end
   slurm.log_info("%s", string.format("advisor: user=%s mode=%s advice=%d boost=%d abstain=%s took=%.3fms",
      tostring(job.user_id), answer.mode, berth.clamp(type(answer.advice) == "number" and answer.advice or answer.boost), boost,
      type(answer.abstain) == "string" and answer.abstain or "-", milliseconds))
end

-- The site's own rules --------------------------------------------------------------------------------------------------

-- hook runs a rule of the site. It may refuse a job by returning a Slurm error code; an error in it refuses nothing.
function berth.hook(name, ...)
   local rule = site[name]
   if not rule then return slurm.SUCCESS end
   local ok, code = pcall(rule, ...)
   if not ok then
      slurm.log_error("%s", "job_submit: the site's rule '" .. name .. "' failed, the job goes on: " .. tostring(code))
      return slurm.SUCCESS
   end
   return type(code) == "number" and code or slurm.SUCCESS
end

-- missing names what the site requires and the job lacks, and Slurm's code for it.
function berth.missing(job)
   if settings.require.time_limit and not (type(job.time_limit) == "number" and job.time_limit ~= slurm.NO_VAL) then
      return "a time limit: sbatch --time=HOURS:MINUTES:SECONDS", slurm.ESLURM_MISSING_TIME_LIMIT or slurm.ERROR
   end
   if settings.require.account and not (type(job.account) == "string" and job.account ~= "") then
      return "an account: sbatch --account=NAME", slurm.ESLURM_INVALID_ACCOUNT or slurm.ERROR
   end
   return nil
end

-- sbatch and scrontab ask for a login shell's environment by this variable of the job's. slurmd obeys to "1" alone.
function berth.no_login_shell(job_desc)
   local environment = job_desc.environment
   if environment and environment.SLURM_GET_USER_ENV then
      environment.SLURM_GET_USER_ENV = "0"
   end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if settings.no_login_shell then
      local ok, err = pcall(berth.no_login_shell, job_desc)
      if not ok then
         slurm.log_error("%s", "job_submit.lua: a job's wish for a login shell stays: " .. tostring(err))
      end
   end
   local code = berth.hook("before", job_desc, part_list, submit_uid)
   if code ~= slurm.SUCCESS then return code end
   local checked, what, refusal = pcall(berth.missing, job_desc)
   if checked and what then
      slurm.log_user("%s", "This site wants every job to name " .. what)
      return refusal
   end
   local ok, err = pcall(berth.advise, job_desc)
   if not ok then
      slurm.log_error("%s", "advisor: an error of job_submit.lua itself, the job goes on without advice: " .. tostring(err))
   end
   return berth.hook("after", job_desc, part_list, submit_uid)
end

-- A change of a waiting job asks nobody. Where jobs are re-ranked, one that a person gives a priority is the person's from then
-- on; the ranker's own changes say so in the comment. Only changes by root and by Slurm's own user are marked so: slurmctld refuses
-- one of a user that touches this comment. Users can't raise priorities, and a nice of theirs is seen by itself.
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local code = berth.hook("modify", job_desc, job_rec, part_list, modify_uid)
   if code ~= slurm.SUCCESS then return code end
   local ok, err = pcall(function()
      local comment = job_desc.admin_comment
      local own = type(comment) == "string" and string.find(comment, "advisor: rank=", 1, true)
      local why = not own and berth.untouchable(job_desc)
      if why and why ~= "held" and why ~= "nice set" and (modify_uid == 0 or modify_uid == settings.slurm_uid) then
         berth.leave_alone(job_desc, comment or job_rec.admin_comment, why)
      end
   end)
   if not ok then
      slurm.log_error("%s", "advisor: an error of job_submit.lua itself, the change goes on: " .. tostring(err))
   end
   return code
end

if settings.test then berth_under_test = berth end

return slurm.SUCCESS
