package custodian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-hpc/berth/components/advisor/placement/custody"
)

// programs are squeue and scontrol as the test plays them.
type programs struct {
	list  string // of squeue
	whole map[string]string
	ran   []string // scontrol's commands
	fails map[string]error
}

func (p *programs) Run(_ context.Context, _ time.Duration, name string, args ...string) (string, error) {
	command := name + " " + strings.Join(args, " ")
	switch {
	case name == "scontrol":
		p.ran = append(p.ran, strings.Join(args, " "))
		return "", p.fails[strings.Join(args, " ")]
	case strings.Contains(command, "--format="):
		return p.list, p.fails["squeue"]
	}
	_, ids, _ := strings.Cut(command, "--jobs=")
	var jobs []string
	for id := range strings.SplitSeq(ids, ",") {
		jobs = append(jobs, p.whole[id])
	}
	return `{"jobs":[` + strings.Join(jobs, ",") + `],"errors":[],"meta":{"plugin":{"data_parser":"data_parser/v0.0.42"}}}`, nil
}

func record(id int, more string) string {
	return fmt.Sprintf(`{"job_id":%d,"job_state":["PENDING"],"tres_req_str":"cpu=1,node=1","submit_time":{"set":true,"number":%d},%s}`, id, time.Now().Unix(), more)
}

const heldByUser = `"hold":true,"state_reason":"JobHeldUser",`

// A promise that is not renewed is kept: what waits held is released when its time is over, what waits for a node may run anywhere, and a
// job of which slurmctld had no answer is tried again. Nothing is asked while it is renewed.
func TestPromiseIsKept(t *testing.T) {
	promise := filepath.Join(t.TempDir(), custody.File)
	synctest.Test(t, func(t *testing.T) {
		p := custody.Promise{Until: time.Now().Add(time.Minute), Terms: custody.Terms{JobNamePrefix: "placed-", GiveUpSeconds: 120, StartSeconds: 120}}
		if err := p.Write(promise); err != nil {
			t.Fatal(err)
		}
		slurm := &programs{
			list: "1|JobHeldUser|\n2|Resources|n0\n3|Priority|\n4_[1-2]|JobHeldUser|\n5|JobHeldUser|\n6|JobHeldUser|\n",
			whole: map[string]string{
				"1": record(1, heldByUser+`"name":"placed-1"`),
				"2": record(2, `"state_reason":"Resources","required_nodes":"n0","admin_comment":"placement: node=n0 at=`+time.Now().UTC().Format(time.RFC3339)+` checkpoint=c"`),
				"5": record(5, heldByUser+`"name":"a person's"`), "6": record(6, heldByUser+`"name":"placed-6","admin_comment":"a word"`),
			},
			fails: map[string]error{"squeue": errors.New("it must not be asked")},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			(&Keeper{Slurm: slurm, Promise: promise, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}).Run(ctx)
			close(done)
		}()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		slurm.fails = map[string]error{
			"release 6": errors.New("slurm_suspend error: Unable to contact slurm controller (connect failure)"),
		}
		time.Sleep(58 * time.Second)
		synctest.Wait()
		if len(slurm.ran) > 0 {
			t.Fatalf("before their time it ran %q", slurm.ran)
		}
		time.Sleep(pace)
		synctest.Wait()
		want := []string{
			"release 1", "update JobId=1 AdminComment=placement: none (no place within 2m0s)",
			"update JobId=2 ReqNodeList=", "update JobId=2 AdminComment=placement: none (not started on n0 within 2m0s)",
			"release 6",
		}
		if fmt.Sprintf("%q", slurm.ran) != fmt.Sprintf("%q", want) {
			t.Errorf("%q\nwant\n%q", slurm.ran, want)
		}
		slurm.ran, slurm.fails = nil, nil
		slurm.list = "6|JobHeldUser|\n"
		time.Sleep(pace)
		synctest.Wait()
		if fmt.Sprint(slurm.ran) != "[release 6 update JobId=6 AdminComment=a word; placement: none (no place within 2m0s)]" {
			t.Errorf("%q", slurm.ran)
		}
		cancel()
		<-done
	})
}
