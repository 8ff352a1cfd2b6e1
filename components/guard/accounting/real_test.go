package accounting_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/accounting"
	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// startDatabase starts MariaDB, slurmdbd and slurmctld.
func startDatabase(t *testing.T) *slurm.Programs {
	t.Helper()
	s := slurmtest.Start(t).Configure(slurmtest.Accounting+`ClusterName=lab
GresTypes=gpu
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos,safe
PriorityType=priority/multifactor
NodeName=w-[0-3] NodeHostname=ctl Port=7000 CPUs=2 RealMemory=1000 Gres=gpu:1 State=FUTURE
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, map[string]string{"gres.conf": "AutoDetect=off\n"})
	s.Database()
	s.Slurmctld()
	return s.Programs()
}

// Accounts, users and qualities of service in a real database: made once, mended when somebody changes them, taken back
// when the site does, and nothing that somebody else made is touched.
func TestRealDatabase(t *testing.T) {
	programs := startDatabase(t)
	database := &accounting.Database{Programs: programs}
	reconcile := func(wanted v1alpha1.Accounts) []string {
		t.Helper()
		done, err := database.Reconcile(context.Background(), "lab", wanted)
		if err != nil {
			t.Fatalf("%v; did %q", err, done)
		}
		if again, err := database.Reconcile(context.Background(), "lab", wanted); err != nil || len(again) > 0 {
			t.Fatalf("a second look did %q, %v", again, err)
		}
		return done
	}
	show := func(args ...string) string {
		t.Helper()
		out, err := programs.Run(t.Context(), time.Minute, "sacctmgr", append([]string{"--noheader", "--parsable2", "show"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	want := func(expected string, args ...string) {
		t.Helper()
		if got := show(args...); got != expected {
			t.Errorf("sacctmgr show %s: %q, want %q", strings.Join(args, " "), got, expected)
		}
	}
	hand := func(args ...string) {
		t.Helper()
		if _, err := programs.Run(t.Context(), time.Minute, "sacctmgr", append([]string{"-i"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	site := func() v1alpha1.Accounts {
		return v1alpha1.Accounts{
			Accounts: []v1alpha1.Account{
				{Name: "lattice", Parent: "vision", Shares: 3, Description: "lattices and lenses"},
				{Name: "vision", Shares: 70, GrpTRES: map[string]int64{"gres/gpu": 2, "cpu": 8, "mem": 4096}, GrpTRESMins: map[string]int64{"gres/gpu": 60000}, MaxJobs: 10, MaxSubmit: 100},
				{Name: "language", Shares: 30, QOS: []string{"normal", "urgent"}},
			},
			Users: []v1alpha1.User{
				{Name: "student", DefaultAccount: "lattice", Accounts: []string{"vision"}, Shares: 2, MaxJobs: 4},
				{Name: "researcher", DefaultAccount: "language", Shares: 1, Admin: true, GrpTRES: map[string]int64{"gres/gpu": 1}},
			},
			QOS: []v1alpha1.QOS{
				{Name: "scavenger", UsageFactor: "0.5"},
				{Name: "urgent", Priority: 100, Preempt: []string{"scavenger"}, MaxWall: "1-00:00:00", Flags: []string{"DenyOnLimit"}, MaxTRESPerUser: map[string]int64{"gres/gpu": 1}, MaxJobsPerUser: 3},
			},
		}
	}
	hand("add", "account", "byhand")
	reconcile(site())
	association := func(account, user, columns string) []string {
		return []string{"association", "wopl", "cluster=lab", "account=" + account, "user=" + user, "format=" + columns}
	}
	const limits = "parentname,share,grptres,grptresmins,maxjobs,maxsubmit"
	want("root|70|cpu=8,gres/gpu=2,mem=4G|gres/gpu=60000|10|100", association("vision", "", limits)...)
	want("vision|3||||", association("lattice", "", limits)...)
	want("2|4", association("lattice", "student", "share,maxjobs")...)
	want("1|gres/gpu=1", association("language", "researcher", "share,grptres")...)
	want("normal,urgent", association("language", "", "qos")...)
	want("normal,scavenger,urgent", association("vision", "", "qos")...) // left out: all
	want("urgent|100|scavenger|DenyOnLimit|1-00:00:00|gres/gpu=1|3", "qos", "urgent", "format=name,priority,preempt,flags,maxwall,maxtrespu,maxjobspu")
	want("scavenger|0.500000", "qos", "scavenger", "format=name,usagefactor")
	want("researcher|language|Administrator", "user", "researcher", "format=user,defaultaccount,adminlevel")

	// Drift is mended by exactly what differs.
	hand("modify", "account", "where", "name=vision", "set", "fairshare=1", "grptres=gres/gpu=8")
	hand("modify", "user", "where", "name=researcher", "set", "adminlevel=none")
	hand("modify", "qos", "where", "name=urgent", "set", "priority=5")
	if did := reconcile(site()); len(did) != 3 || !strings.Contains(strings.Join(did, "; "), "fairshare=70 grptres=gres/gpu=2") {
		t.Errorf("drift was mended by %q", did)
	}

	// What leaves the site's limits leaves the database's; a moved account is moved.
	changed := site()
	changed.Accounts[0].Parent = "language"
	changed.Accounts[1] = v1alpha1.Account{Name: "vision", Shares: 1, GrpTRES: map[string]int64{"gres/gpu": 4}}
	changed.Users[0].MaxJobs, changed.Users[0].DefaultAccount, changed.Users[0].Accounts = 0, "vision", []string{"lattice"}
	changed.QOS[1].MaxWall, changed.QOS[1].Flags, changed.QOS[1].Preempt = "", nil, nil
	reconcile(changed)
	want("root|1|gres/gpu=4|||", association("vision", "", limits)...)
	want("language|3", association("lattice", "", "parentname,share")...)
	want("2|", association("lattice", "student", "share,maxjobs")...)
	want("student|vision|None", "user", "student", "format=user,defaultaccount,adminlevel")
	want("urgent|||", "qos", "urgent", "format=name,preempt,flags,maxwall")

	// Who left the site keeps what they have: their jobs may still run.
	left := site()
	left.Users = left.Users[:1]
	reconcile(left)
	want("language|researcher", association("language", "researcher", "account,user")...)
	want("byhand", "account", "byhand", "format=account")

	// A loop of accounts is said, and nothing is done.
	if done, err := database.Reconcile(context.Background(), "lab", v1alpha1.Accounts{Accounts: []v1alpha1.Account{{Name: "a", Parent: "b"}, {Name: "b", Parent: "a"}}}); err == nil || len(done) > 0 {
		t.Errorf("two accounts that are each other's parents: %q %v", done, err)
	}
}
