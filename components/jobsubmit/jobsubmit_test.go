package jobsubmit

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
)

const liveAnswer = `{"boost":120,"value":0.83,"mode":"live","checkpoint":"sha256:abc"}`

func settings(mode, socket string) Settings {
	// A second: what is tested here is not how long it takes, and the machine may be busy.
	return Settings{Mode: mode, Deadline: time.Second, MaxBoost: 1000, Socket: socket}
}

// In live mode the advice is written to the site factor, and the comment says where it comes from.
func TestLiveBoostsBySiteFactor(t *testing.T) {
	in := newInterpreter(t, settings(Live, advisor(t, answering(liveAnswer))))
	code, after := in.submit(job{"user_id": 1000, "priority": 4294967294, "nice": 4294967294, "site_factor": 4294967294, "admin_comment": "from before"})
	if code != 0 || after["site_factor"] != lua.LNumber(120) || after["priority"] != lua.LNumber(4294967294) {
		t.Errorf("code %d, %v", code, after)
	}
	if note := after["admin_comment"].String(); !strings.HasPrefix(note, "from before; advisor: boost=120 value=0.83 checkpoint=sha256:abc took=") {
		t.Errorf("admin_comment is %q", note)
	}
}

// In shadow mode nothing of the job changes, whatever the advisor says; what it said is a line in slurmctld's log.
func TestShadowChangesNothing(t *testing.T) {
	in := newInterpreter(t, settings(Shadow, advisor(t, answering(liveAnswer))))
	before := job{"user_id": 1000, "name": "train"}
	code, after := in.submit(before)
	if code != 0 || len(after) != len(before) {
		t.Errorf("code %d, %v", code, after)
	}
	if log := in.since(); !strings.Contains(log, "info advisor: user=1000 mode=live advice=120 boost=0") {
		t.Error(log)
	}
}

// An advisor that demoted itself, or abstains, boosts nobody, though live is rendered.
func TestAdvisorMayHoldBack(t *testing.T) {
	for _, answer := range []string{
		`{"boost":0,"advice":120,"mode":"shadow"}`, `{"boost":120,"mode":"shadow"}`, `{"boost":120,"mode":"live","abstain":"stale_snapshot"}`,
	} {
		in := newInterpreter(t, settings(Live, advisor(t, answering(answer))))
		if code, after := in.submit(job{"user_id": 1}); code != 0 || len(after) != 1 {
			t.Errorf("%s: code %d, %v", answer, code, after)
		}
	}
}

// A boost is whole, at least 0 and at most the site's bound.
func TestBoostIsClamped(t *testing.T) {
	for answer, want := range map[string]lua.LValue{
		"1000000000": lua.LNumber(1000), "12.9": lua.LNumber(12), "-5": nil, "0": nil, "0.5": nil,
	} {
		in := newInterpreter(t, settings(Live, advisor(t, answering(`{"mode":"live","boost":`+answer+`}`))))
		if _, after := in.submit(job{"user_id": 1}); after["site_factor"] != want {
			t.Errorf("boost %s gave the site factor %v, want %v", answer, after["site_factor"], want)
		}
	}
}

// What a person has set is theirs: such jobs are not even asked about.
func TestPeoplesPriorities(t *testing.T) {
	var asked atomic.Int32
	socket := advisor(t, func(conn net.Conn) { asked.Add(1); answering(liveAnswer)(conn) })
	in := newInterpreter(t, settings(Live, socket))
	for name, j := range map[string]job{
		"held": {"priority": 0}, "priority set": {"priority": 5000}, "nice set": {"nice": 2147483648 + 100}, "site factor set": {"site_factor": -3},
	} {
		code, after := in.submit(j)
		if code != 0 || after["admin_comment"] != nil || !strings.Contains(in.since(), "none ("+name+")") {
			t.Errorf("%s: code %d, %v", name, code, after)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the advisor was asked %d times", asked.Load())
	}
	if _, after := in.submit(job{"nice": 2147483648 - 100}); after["site_factor"] != nil {
		t.Error("an administrator's negative nice was overridden")
	}
}

// Nothing that an advisor sends refuses a job or changes it.
func TestBadAnswersChangeNothing(t *testing.T) {
	raw := func(text string) func(net.Conn) {
		return func(conn net.Conn) { readRequest(conn); _, _ = conn.Write([]byte(text)) }
	}
	for name, serve := range map[string]func(net.Conn){
		"nothing":            func(net.Conn) {},
		"garbage":            raw("\x00\xff\x17 garbage"),
		"half an answer":     raw("HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{\"boost\":12"),
		"no length":          raw("HTTP/1.1 200 OK\r\n\r\n" + liveAnswer),
		"another status":     raw("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"),
		"no object":          answering(`[1]`),
		"no boost":           answering(`{"mode":"live"}`),
		"boost is a text":    answering(`{"mode":"live","boost":"120"}`),
		"infinite":           answering(`{"mode":"live","boost":1e999}`),
		"too many digits":    answering(`{"mode":"live","boost":0.` + strings.Repeat("3", 99) + `}`),
		"not a number":       answering(`{"mode":"live","boost":NaN}`),
		"twice":              answering(`{"mode":"live","boost":1,"boost":2}`),
		"nested":             answering(`{"mode":"live","boost":1,"x":{}}`),
		"Lua":                answering(`{"mode":"live","boost":1,"checkpoint":"\"..os.exit()..\""}`),
		"format directives":  answering(`{"mode":"live","boost":1,"checkpoint":"%s%n"}`),
		"a page too long":    answering(strings.Repeat(" ", LongestAnswer) + liveAnswer),
		"two answers at one": answering(liveAnswer + liveAnswer),
	} {
		t.Run(name, func(t *testing.T) {
			in := newInterpreter(t, settings(Live, advisor(t, serve)))
			code, after := in.submit(job{"user_id": 1})
			if code != 0 || len(after) != 1 {
				t.Errorf("code %d, %v", code, after)
			}
			if log := in.since(); !strings.Contains(log, "debug advisor: none (") {
				t.Errorf("the log does not say that there was no advice: %s", log)
			}
		})
	}
}

// One deadline bounds all of it, however the advisor stalls.
func TestDeadline(t *testing.T) {
	hang := func(net.Conn) { time.Sleep(3 * time.Second) }
	trickle := func(conn net.Conn) {
		readRequest(conn)
		for range 100 {
			if _, err := conn.Write([]byte("H")); err != nil {
				return
			}
			time.Sleep(15 * time.Millisecond)
		}
	}
	flood := func(conn net.Conn) {
		readRequest(conn)
		block := make([]byte, 1<<20)
		for range 100 {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
	}
	for name, serve := range map[string]func(net.Conn){"hung": hang, "trickle": trickle, "flood": flood} {
		t.Run(name, func(t *testing.T) {
			s := settings(Live, advisor(t, serve))
			s.Deadline = 100 * time.Millisecond
			in := newInterpreter(t, s)
			from := time.Now()
			code, after := in.submit(job{"user_id": 1})
			if took := time.Since(from); took > time.Second { // ten times the deadline: a machine may be busy, 3 s are not a deadline
				t.Errorf("it took %s", took)
			}
			if code != 0 || len(after) != 1 {
				t.Errorf("code %d, %v", code, after)
			}
		})
	}
}

// After three failures in a row the advisor is left alone for a while; then one submission probes.
func TestBreaker(t *testing.T) {
	var broken atomic.Bool
	var asked atomic.Int32
	broken.Store(true)
	socket := advisor(t, func(conn net.Conn) {
		asked.Add(1)
		if !broken.Load() {
			answering(liveAnswer)(conn)
		}
	})
	in := newInterpreter(t, settings(Live, socket))
	submit := func(what string, wantAsked int32, wantBoost bool) {
		t.Helper()
		_, after := in.submit(job{"user_id": 1})
		if asked.Load() != wantAsked || (after["site_factor"] != nil) != wantBoost {
			t.Errorf("%s: asked %d times, want %d; the job is %v", what, asked.Load(), wantAsked, after)
		}
	}
	for i := range int32(3) {
		submit("closed", i+1, false)
	}
	if log := in.since(); strings.Count(log, "error ") != 1 || !strings.Contains(log, "sidecar failed 3 times") {
		t.Errorf("the opening is not said once: %s", log)
	}
	submit("open", 3, false)
	in.clock += 11 * time.Second
	submit("the probe fails", 4, false)
	in.clock += 11 * time.Second
	submit("and the rest is doubled", 4, false)
	in.clock += 10 * time.Second
	broken.Store(false)
	submit("the probe succeeds", 5, true)
	submit("closed again", 6, true)
	broken.Store(true)
	for i := range int32(3) {
		submit("closed", 7+i, false)
	}
	in.clock -= 24 * time.Hour
	broken.Store(false)
	submit("a clock set back does not keep it open", 10, true)
}

// Without a sidecar the service is asked, at the address and with the token that the sidecar left; never by a name.
func TestServiceIsSecond(t *testing.T) {
	var head atomic.Value
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go accept(listener, func(conn net.Conn) {
		h, _ := readRequest(conn)
		head.Store(h)
		body := liveAnswer
		_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: " + itoa(len(body)) + "\r\n\r\n" + body))
	})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	file := filepath.Join(t.TempDir(), "service")
	s := settings(Live, filepath.Join(t.TempDir(), "nobody"))
	s.Service = file
	for text, served := range map[string]bool{
		"127.0.0.1 " + port + " s3cret\n": true, "": false, "advisor.example 80 s3cret\n": false,
		"127.0.0.1 " + port + "\n": false, "127.0.0.1 99999 s3cret\n": false, "127.0.0.1 " + port + " x\r\nEvil: 1\n": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		in := newInterpreter(t, s)
		if _, after := in.submit(job{"user_id": 1}); (after["site_factor"] != nil) != served {
			t.Errorf("%q: %v\n%s", text, after, in.since())
		}
	}
	if h, _ := head.Load().(string); !strings.Contains(h, "\r\nAuthorization: Bearer s3cret") {
		t.Errorf("the token is missing: %s", h)
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// The request is JSON whatever a job is called.
func TestRequestIsJSON(t *testing.T) {
	var bodies []string
	for _, name := range []string{
		"train", "Prüfung ☃ 訓練 🚀", `"},"boost":99,{"`, "line\nbreak\ttab\x00zero\x7f", `--wrap '{"a": "b\\"}'`, "\xff\xfe\xc3(\xed\xa0\x80",
		strings.Repeat("é", 40000), "]]--[[", "%s%d%n",
	} {
		var got atomic.Value
		socket := advisor(t, func(conn net.Conn) {
			_, body := readRequest(conn)
			got.Store(body)
			answering(liveAnswer)(conn)
		})
		in := newInterpreter(t, settings(Live, socket))
		in.submit(job{
			"name": name, "comment": strings.Repeat("x", 65536), "user_id": 1000, "time_limit": 90, "min_cpus": 4, "cpus_per_task": 65534,
			"min_nodes": 4294967294, "tres_per_node": "gres/mps:25", "array_inx": "0-999%10", "min_mem_per_node": 18446744073709551614.0,
		})
		body, _ := got.Load().(string)
		var request map[string]any
		if err := json.Unmarshal([]byte(body), &request); err != nil {
			t.Errorf("%q: %v\n%s", name, err, body)
			continue
		}
		sent, _ := request["name"].(string)
		if want := strings.ToValidUTF8(name, "\uFFFD"); len(name) < 200 && strings.ReplaceAll(sent, "\uFFFD", "") != strings.ReplaceAll(want, "\uFFFD", "") {
			t.Errorf("%q arrived as %q", name, sent)
		}
		if len(body) > 2000 {
			t.Errorf("a request of %d bytes", len(body))
		}
		for field, want := range map[string]any{
			"user_id": 1000.0, "limit_minutes": 90.0, "cpus": 4.0, "tres_per_node": "gres/mps:25", "array": "0-999%10",
			"cpus_per_task": nil, "nodes": nil, "memory_mib": nil,
		} {
			if request[field] != want {
				t.Errorf("%s is %v, want %v", field, request[field], want)
			}
		}
		bodies = append(bodies, body)
	}
	if len(bodies) == 0 {
		t.Fatal("nothing was asked")
	}
}

// Required fields are the only thing for which the script itself refuses a job.
func TestRequiredFields(t *testing.T) {
	s := Settings{RequireTimeLimit: true, RequireAccount: true}
	in := newInterpreter(t, s)
	for _, c := range []struct {
		job  job
		code int
		says string
	}{
		{job{"time_limit": 60, "account": "science"}, 0, ""},
		{job{"time_limit": 4294967294, "account": "science"}, 2052, "user This site wants every job to name a time limit: sbatch --time="},
		{job{"time_limit": 60}, 2045, "user This site wants every job to name an account: sbatch --account="},
	} {
		if code, _ := in.submit(c.job); code != c.code || !strings.Contains(in.since(), c.says) {
			t.Errorf("%v: code %d, want %d", c.job, code, c.code)
		}
	}
	if code, _ := in.call("slurm_job_modify", job{}); code != 0 {
		t.Error("a change of a job was refused")
	}
}

// A site's own rules run before and after; they may refuse, and an error in them refuses nothing.
func TestSiteRules(t *testing.T) {
	s := settings(Live, advisor(t, answering(liveAnswer)))
	s.Before = `if job_desc.partition == "debug" then slurm.log_user("%s", "not here") return slurm.ERROR end
job_desc.comment = "seen"`
	s.After = `job_desc.comment = job_desc.comment .. " " .. tostring(job_desc.site_factor)
if job_desc.name == "boom" then error("a bug in " .. nil) end`
	s.Modify = `if modify_uid ~= 0 and job_desc.qos then return slurm.ERROR end`
	in := newInterpreter(t, s)
	if code, after := in.submit(job{"user_id": 1}); code != 0 || after["comment"].String() != "seen 120" {
		t.Errorf("code %d, %v", code, after)
	}
	if code, after := in.submit(job{"partition": "debug"}); code != -1 || after["site_factor"] != nil {
		t.Errorf("code %d, %v", code, after)
	}
	in.since()
	if code, _ := in.submit(job{"name": "boom"}); code != 0 || !strings.Contains(in.since(), "rule 'after' failed, the job goes on") {
		t.Errorf("code %d", code)
	}
	if code, _ := in.call("slurm_job_modify", job{"qos": "high"}); code != -1 {
		t.Errorf("code %d", code)
	}
}

// Where jobs are re-ranked, one whose priority a person has set is marked as theirs, at its submission and later; the ranker's own
// changes are not, nor a user's, who must not write that comment.
func TestPeoplesJobsAreMarked(t *testing.T) {
	s := settings(Live, advisor(t, answering(liveAnswer)))
	if _, after := newInterpreter(t, s).submit(job{"priority": 5000}); after["admin_comment"] != nil {
		t.Errorf("marked without re-ranking: %v", after)
	}
	s.Rerank, s.SlurmUID = true, 64030
	in := newInterpreter(t, s)
	for _, c := range []struct {
		job  job
		want string
	}{
		{job{"priority": 5000}, "advisor: left alone (priority set)"},
		{job{"nice": 2147483648 + 100, "admin_comment": "before"}, "before; advisor: left alone (nice set)"},
		{job{"priority": 0}, ""}, // held: its release gives it a priority
	} {
		_, after := in.submit(c.job)
		if got := after["admin_comment"]; (got == nil) != (c.want == "") || got != nil && got.String() != c.want {
			t.Errorf("%v is marked %v, want %q", c.job, got, c.want)
		}
	}
	for _, c := range []struct {
		by     int
		change job
		want   string
	}{
		{0, job{"priority": 5000}, "advisor: left alone (priority set)"},
		{64030, job{"site_factor": 2147483648 + 7}, "advisor: left alone (site factor set)"},
		{64030, job{"site_factor": 2147483648 + 7, "admin_comment": "advisor: rank=7 checkpoint=builtin:saf"}, "advisor: rank=7 checkpoint=builtin:saf"},
		{0, job{"priority": 5000, "admin_comment": "by a person"}, "by a person; advisor: left alone (priority set)"},
		{0, job{"time_limit": 5}, ""}, {1000, job{"priority": 1}, ""}, {0, job{"priority": 0}, ""}, {0, job{"nice": 2147483648 + 3}, ""},
	} {
		in.caller = c.by
		code, after := in.call("slurm_job_modify", c.change)
		if got := after["admin_comment"]; code != 0 || (got == nil) != (c.want == "") || got != nil && got.String() != c.want {
			t.Errorf("%v by %d: code %d, marked %v, want %q", c.change, c.by, code, got, c.want)
		}
	}
}

// A rule that is not Lua is found when the site is rendered.
func TestRuleThatIsNotLua(t *testing.T) {
	for _, code := range []string{"if x then", "end function slurm_job_submit()", "return 1 end", "x = = 1"} {
		if _, err := Script(Settings{Before: code}); err == nil || !strings.Contains(err.Error(), "before is not Lua") {
			t.Errorf("%q: %v", code, err)
		}
	}
}

// Without LuaSocket (another Slurm image, say) the script loads and jobs go on.
func TestWithoutLuaSocket(t *testing.T) {
	script, err := Script(settings(Live, "/nobody"))
	if err != nil {
		t.Fatal(err)
	}
	in := &interpreter{t: t, state: lua.NewState()}
	defer in.state.Close()
	in.slurmTable()
	if err := in.state.DoString(script); err != nil {
		t.Fatal(err)
	}
	if code, after := in.submit(job{"user_id": 1}); code != 0 || len(after) != 1 || !strings.Contains(in.since(), "LuaSocket is missing") {
		t.Errorf("code %d, %v", code, after)
	}
}

func TestNeeded(t *testing.T) {
	for _, s := range []Settings{{}, {Mode: Off}} {
		if s.Needed() {
			t.Errorf("%+v needs a script", s)
		}
	}
	for _, s := range []Settings{{Mode: Shadow}, {RequireAccount: true}, {After: "return 0"}} {
		if !s.Needed() {
			t.Errorf("%+v needs no script", s)
		}
	}
}

// FuzzDecode: what the script's parser takes is JSON, and means what JSON says it means.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		liveAnswer, `{}`, ` { "a" : null , "b" : -0.5 } `, `{"a":"x y_z.:/+@-"}`, `{"a":01}`, `{"a":1.}`, `{"a":"\u0041"}`, `{"a":[]}`, `{"a":1}}`, "{\"a\":\"\x00\"}",
		`{"a":true,"b":false}`, `{"a":"","a":1}`,
	} {
		f.Add(seed)
	}
	in := newInterpreter(f, Settings{Mode: Shadow})
	decode := in.function("decode")
	f.Fuzz(func(t *testing.T, text string) {
		if err := in.state.CallByParam(lua.P{Fn: decode, NRet: 2, Protect: true}, lua.LString(text)); err != nil {
			t.Fatalf("decode(%q) raised %v", text, err)
		}
		object, why := in.state.Get(-2), in.state.Get(-1)
		in.state.Pop(2)
		if object == lua.LNil {
			if why == lua.LNil {
				t.Fatalf("decode(%q) says not why", text)
			}
			return
		}
		var want map[string]any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("decode takes %q, which is no JSON object: %v", text, err)
		}
		object.(*lua.LTable).ForEach(func(k, v lua.LValue) {
			switch w := want[k.String()].(type) {
			case string:
				if v.String() != w {
					t.Errorf("%q: %s is %q, want %q", text, k, v, w)
				}
			case float64:
				if float64(v.(lua.LNumber)) != w {
					t.Errorf("%q: %s is %v, want %v", text, k, v, w)
				}
			case bool:
				if lua.LVAsBool(v) != w {
					t.Errorf("%q: %s is %v, want %v", text, k, v, w)
				}
			default:
				t.Errorf("%q: %s is %v, want %v", text, k, v, w)
			}
			delete(want, k.String())
		})
		for k, v := range want {
			if v != nil {
				t.Errorf("%q: %s is lost", text, k)
			}
		}
	})
}

// FuzzEncode: a request is JSON, short, and valid UTF-8 for any bytes in a job's texts.
func FuzzEncode(f *testing.F) {
	for _, seed := range []string{"train", "\xff", `"`, "\\", "\n", "é☃🚀", "\xf0\x9f"} {
		f.Add(seed, seed, 90.0)
	}
	in := newInterpreter(f, Settings{Mode: Shadow})
	encode := in.function("encode")
	f.Fuzz(func(t *testing.T, name, partition string, limit float64) {
		table := in.state.NewTable()
		table.RawSetString("name", lua.LString(name))
		table.RawSetString("partition", lua.LString(partition))
		table.RawSetString("time_limit", lua.LNumber(limit))
		if err := in.state.CallByParam(lua.P{Fn: encode, NRet: 1, Protect: true}, table); err != nil {
			t.Fatalf("encode raised %v", err)
		}
		text := in.state.Get(-1).String()
		in.state.Pop(1)
		if !json.Valid([]byte(text)) || strings.ToValidUTF8(text, "") != text || len(text) > 4096 {
			t.Fatalf("%q", text)
		}
	})
}
