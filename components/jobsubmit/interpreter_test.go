package jobsubmit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// interpreter runs the script as slurmctld would, with a stand-in for the table `slurm` and LuaSocket over real sockets.
type interpreter struct {
	caller int // user number of who submits or changes
	t      testing.TB
	state  *lua.LState
	logs   []string      // "level text"
	clock  time.Duration // added to the real time
	logged int
}

func newInterpreter(t testing.TB, s Settings) *interpreter {
	t.Helper()
	s.expose = true
	script, err := Script(s)
	if err != nil {
		t.Fatal(err)
	}
	in := &interpreter{caller: 1000, t: t, state: lua.NewState()}
	t.Cleanup(in.state.Close)
	in.slurmTable()
	in.state.PreloadModule("socket.core", in.socketCore)
	in.state.PreloadModule("socket.unix", in.socketUnix)
	if err := in.state.DoString(script); err != nil {
		t.Fatalf("the script does not load: %v", err)
	}
	return in
}

func (in *interpreter) slurmTable() {
	table := in.state.NewTable()
	for name, value := range map[string]int{
		"SUCCESS": 0, "ERROR": -1, "NO_VAL": 4294967294, "ESLURM_MISSING_TIME_LIMIT": 2052, "ESLURM_INVALID_ACCOUNT": 2045,
	} {
		table.RawSetString(name, lua.LNumber(value))
	}
	for _, level := range []string{"error", "info", "verbose", "debug", "user"} {
		table.RawSetString("log_"+level, in.state.NewFunction(func(l *lua.LState) int {
			if l.CheckString(1) != "%s" {
				l.RaiseError("a text is used as a format: %q", l.CheckString(1))
			}
			in.logs = append(in.logs, level+" "+l.CheckString(2))
			return 0
		}))
	}
	in.state.SetGlobal("slurm", table)
}

func (in *interpreter) socketCore(l *lua.LState) int {
	l.Push(l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"gettime": func(l *lua.LState) int {
			l.Push(lua.LNumber(float64(time.Now().Add(in.clock).UnixNano()) / 1e9))
			return 1
		},
		"tcp": func(l *lua.LState) int { l.Push(in.socket("tcp")); return 1 },
	}))
	return 1
}

func (in *interpreter) socketUnix(l *lua.LState) int {
	l.Push(l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"stream": func(l *lua.LState) int { l.Push(in.socket("unix")); return 1 },
	}))
	return 1
}

// socket is LuaSocket's client object, as far as the script uses it: settimeout(seconds, "t") is the total time of each of
// the calls after it.
func (in *interpreter) socket(network string) *lua.LTable {
	var conn net.Conn
	var timeout time.Duration
	fail := func(l *lua.LState, err error, more ...lua.LValue) int {
		word := err.Error()
		var timed net.Error
		switch {
		case errors.As(err, &timed) && timed.Timeout():
			word = "timeout"
		case errors.Is(err, io.EOF):
			word = "closed"
		}
		l.Push(lua.LNil)
		l.Push(lua.LString(word))
		for _, v := range more {
			l.Push(v)
		}
		return 2 + len(more)
	}
	return in.state.SetFuncs(in.state.NewTable(), map[string]lua.LGFunction{
		"settimeout": func(l *lua.LState) int {
			if l.CheckString(3) != "t" {
				l.RaiseError("a timeout that is not total")
			}
			timeout = time.Duration(float64(l.CheckNumber(2)) * 1e9)
			return 0
		},
		"connect": func(l *lua.LState) int {
			address := l.CheckString(2)
			if network == "tcp" {
				if net.ParseIP(address) == nil {
					l.RaiseError("a name would be looked up: %s", address)
				}
				address = net.JoinHostPort(address, fmt.Sprint(l.CheckInt(3)))
			}
			var err error
			if conn, err = net.DialTimeout(network, address, timeout); err != nil {
				return fail(l, err)
			}
			l.Push(lua.LNumber(1))
			return 1
		},
		"send": func(l *lua.LState) int {
			_ = conn.SetDeadline(time.Now().Add(timeout))
			n, err := conn.Write([]byte(l.CheckString(2)))
			if err != nil {
				return fail(l, err, lua.LNumber(n))
			}
			l.Push(lua.LNumber(n))
			return 1
		},
		"receive": func(l *lua.LState) int {
			_ = conn.SetDeadline(time.Now().Add(timeout))
			buffer := make([]byte, l.CheckInt(2))
			n, err := io.ReadFull(conn, buffer)
			if err != nil {
				if errors.Is(err, io.ErrUnexpectedEOF) {
					err = io.EOF
				}
				return fail(l, err, lua.LString(buffer[:n]))
			}
			l.Push(lua.LString(buffer))
			return 1
		},
		"close": func(*lua.LState) int {
			if conn != nil {
				_ = conn.Close()
			}
			return 0
		},
	})
}

// job is a submission's job_desc.
type job map[string]any

// submit calls slurm_job_submit and returns its code and what the job looks like after it.
func (in *interpreter) submit(j job) (int, map[string]lua.LValue) {
	in.t.Helper()
	return in.call("slurm_job_submit", j)
}

func (in *interpreter) call(function string, j job) (int, map[string]lua.LValue) {
	in.t.Helper()
	table := in.state.NewTable()
	for name, value := range j {
		switch v := value.(type) {
		case string:
			table.RawSetString(name, lua.LString(v))
		case int:
			table.RawSetString(name, lua.LNumber(v))
		case float64:
			table.RawSetString(name, lua.LNumber(v))
		}
	}
	arguments := []lua.LValue{table, in.state.NewTable(), lua.LNumber(in.caller)}
	if function == "slurm_job_modify" {
		arguments = []lua.LValue{table, in.state.NewTable(), in.state.NewTable(), lua.LNumber(in.caller)}
	}
	if err := in.state.CallByParam(lua.P{Fn: in.state.GetGlobal(function), NRet: 1, Protect: true}, arguments...); err != nil {
		in.t.Fatalf("%s raised an error: %v", function, err)
	}
	code := int(in.state.CheckNumber(-1))
	in.state.Pop(1)
	after := map[string]lua.LValue{}
	table.ForEach(func(k, v lua.LValue) { after[k.String()] = v })
	return code, after
}

// function is one of the script's own functions.
func (in *interpreter) function(name string) lua.LValue {
	return in.state.GetGlobal("berth_under_test").(*lua.LTable).RawGetString(name)
}

// since are the log lines since the last call of it.
func (in *interpreter) since() string {
	lines := in.logs[in.logged:]
	in.logged = len(in.logs)
	return strings.Join(lines, "\n")
}

// advisor is a stand-in advisor on a unix socket that hands every connection to serve.
func advisor(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "advisor-") // short, as unix sockets' paths are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go accept(listener, serve)
	return dir + "/s"
}

func accept(listener net.Listener, serve func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			serve(conn)
		}()
	}
}

// readRequest reads one request's head and body.
func readRequest(conn net.Conn) (head, body string) {
	buffer := make([]byte, 1<<16)
	text := ""
	for {
		n, err := conn.Read(buffer)
		text += string(buffer[:n])
		if h, b, whole := strings.Cut(text, "\r\n\r\n"); whole {
			var length int
			if i := strings.Index(h, "Content-Length: "); i >= 0 {
				fmt.Sscanf(h[i:], "Content-Length: %d", &length)
			}
			if len(b) >= length {
				return h, b
			}
		}
		if err != nil {
			return text, ""
		}
	}
}

// answering serves one body with status 200.
func answering(body string) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	}
}
