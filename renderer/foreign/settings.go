package foreign

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
)

// byBerth is why a line is not carried over that Berth writes by itself.
const byBerth = "Berth writes it itself; nothing is lost if the cluster does not depend on the value"

// weights are slurm.conf's keys of the multifactor plugin's weights, in small letters, to the site's.
var weights = map[string]string{
	"priorityweightage": "age", "priorityweightfairshare": "fairShare", "priorityweightjobsize": "jobSize",
	"priorityweightpartition": "partition", "priorityweightqos": "qos", "priorityweightassoc": "assoc",
}

// spans are keys that hold a time, to the field of slurm that holds it.
var spans = map[string]string{
	"killwait": "killWait", "resumetimeout": "resumeTimeout", "suspendtimeout": "suspendTimeout", "prioritydecayhalflife": "priority.decayHalfLife",
	"prioritymaxage": "priority.maxAge",
}

var backfill = map[string]struct{ field, unit string }{
	"bf_interval": {"backfill.interval", "s"}, "bf_resolution": {"backfill.resolution", "s"}, "bf_window": {"backfill.window", "m"}, "bf_max_job_test": {"backfill.maxJobs", ""},
}

// setting carries one Key=Value of slurm.conf over, or says why it does not.
func (c *conf) setting(l confLine, p pair, own []string) {
	d, key := c.d, strings.ToLower(p.key)
	leave := func(why string) { d.left(l.file, l.number, p.key+"="+p.value, why) }
	set := func(field, value string) { d.slurm = append(d.slurm, setting{field, value}) }
	number := func(field string, least, most int) {
		if n, err := strconv.Atoi(p.value); err != nil || n < least || n > most {
			leave("a site takes " + strconv.Itoa(least) + " to " + strconv.Itoa(most) + " there (slurm." + field + ")")
		} else {
			set(field, strconv.Itoa(n))
		}
	}
	switch {
	case key == "clustername":
		if d.cluster = p.value; clusterName(p.value) != p.value {
			d.assume("cluster.name", "it was "+p.value+", which slurmdbd folds; the old cluster's state belongs to the old name")
		}
	case key == "include":
		leave("the included file is not read; import it too, or write it into the file")
	case weights[key] != "":
		number("priority.weights."+weights[key], 0, 1_000_000_000)
	case spans[key] != "":
		value, ok := duration(p.value)
		switch {
		case !ok:
			leave("not a time that a site takes (slurm." + spans[key] + ")")
		case key == "resumetimeout" && atoi(p.value, 300) < 300:
			leave("a worker that still pulls its image would be marked DOWN; the site's default of 10m stands")
		case key == "suspendtimeout" && atoi(p.value, 300) < 180:
			leave("it must be longer than a worker has to end (pools.*.drainTimeout); the site's default of 5m stands")
		case key == "killwait" && atoi(p.value, 30) > 90:
			leave("it must be shorter than a worker has to end (pools.*.drainTimeout); raise both")
		default:
			set(spans[key], value)
		}
	case key == "suspendtime":
		if value, ok := duration(p.value); ok {
			c.idle = value
		} else {
			leave("workers are given back after their pool's idle time")
		}
	case key == "defmempercpu":
		number("", 1, 1<<30)
		if last := len(d.slurm) - 1; last >= 0 && d.slurm[last].path == "" {
			d.slurm[last] = setting{"defMemPerCPU", text(p.value + "Mi")}
		}
	case key == "maxjobcount":
		number("maxJobCount", 1000, 10_000_000)
	case key == "maxarraysize":
		number("maxArraySize", 2, 4_000_001)
	case key == "schedulertype" && strings.HasSuffix(p.value, "builtin"):
		set("backfill.enabled", "false")
	case key == "schedulerparameters":
		c.schedulerParameters(l, p)
	case key == "priorityfavorsmall" && strings.EqualFold(p.value, "YES"):
		leave("a site can favour larger jobs only (slurm.priority.favorLarge); in this it does as Slurm's default")
	case key == "licenses":
		c.licenses(l, p)
	case key == "privatedata":
		var kept []string
		for _, what := range strings.Split(strings.ToLower(p.value), ",") {
			if slices.Contains([]string{"accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users"}, what) && !slices.Contains(kept, what) {
				kept = append(kept, what)
			} else {
				leave("a site knows no private data named " + what)
			}
		}
		if len(kept) > 0 {
			set("privateData", texts(kept))
		}
	case key == "srunportrange":
		from, to, _ := strings.Cut(p.value, "-")
		first, last := atoi(from, 0), atoi(to, 0)
		if first < 7000 || last > 65535 || last-first < 99 {
			leave("a site takes 100 ports or more, away from those of its services; its default stands")
		} else {
			set("srunPorts", "{first: "+from+", last: "+to+"}")
		}
	case slices.Contains(own, key):
		leave(byBerth)
	case c.hasLine(key):
		leave("set twice; the first stands")
	case !lineValue.MatchString(p.value):
		leave("the value is not one that a line of slurm.conf can hold")
	default:
		d.lines = append(d.lines, p.key+"="+p.value)
	}
}

var lineValue = regexp.MustCompile(`^[^\n\r]*$`)

func (c *conf) hasLine(key string) bool {
	return slices.ContainsFunc(c.d.lines, func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return strings.EqualFold(name, key)
	})
}

func (c *conf) schedulerParameters(l confLine, p pair) {
	for _, one := range strings.Split(p.value, ",") {
		name, value, _ := strings.Cut(one, "=")
		known, is := backfill[strings.ToLower(name)]
		if n, err := strconv.Atoi(value); !is || err != nil || n < 1 {
			c.d.left(l.file, l.number, "SchedulerParameters="+one, "Berth writes the others by itself; the site has slurm.backfill for interval, window, resolution and jobs")
			continue
		}
		if known.unit != "" {
			value = text(value + known.unit)
		}
		c.d.slurm = append(c.d.slurm, setting{known.field, value})
	}
}

var licence = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_.-]*):([1-9][0-9]*)$`)

func (c *conf) licenses(l confLine, p pair) {
	for _, one := range strings.Split(p.value, ",") {
		if m := licence.FindStringSubmatch(one); m != nil {
			c.d.slurm = append(c.d.slurm, setting{"licenses." + text(m[1]), m[2]})
		} else {
			c.d.left(l.file, l.number, "Licenses="+one, "not name:count with a count of one or more")
		}
	}
}

var partitionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,62}$`)

// partition carries a PartitionName line over: to its pool's own partition, or to one over pools.
func (c *conf) partition(l confLine, nodes []string, poolOf, whole map[string]string) {
	d, name := c.d, l.pairs[0].value
	if len(nodes) == 0 || !partitionName.MatchString(name) {
		d.left(l.file, l.number, "PartitionName="+name, "it has no nodes, or a name that a site's partition cannot have")
		return
	}
	pairs := l.pairs[1:]
	for _, p := range c.defaults["partition"].pairs {
		if l.get(p.key) == "" {
			pairs = append(pairs, p)
		}
	}
	fields := d.partitionFields(l.file, l.number, name, pairs)
	if pool := whole[name]; pool != "" {
		d.pools[pool].partition = fields
		return
	}
	var pools []string
	for _, n := range nodes {
		if !slices.Contains(pools, poolOf[n]) {
			pools = append(pools, poolOf[n])
		}
	}
	d.overPools(l.file, l.number, name, pools, fields)
}

// overPools adds a partition over several pools.
func (d *Draft) overPools(file string, line int, name string, pools []string, fields []setting) {
	if _, taken := d.pools[name]; taken {
		d.left(file, line, "partition "+name, "a pool is called so, whose own partition has the name; rename the pool or the partition")
		return
	}
	d.partitions[name] = &partition{pools, fields}
}

// partitionFields are the settings of a partition from its Key=Value pairs.
func (d *Draft) partitionFields(file string, line int, name string, pairs []pair) []setting {
	var fields []setting
	longest, usual := "", ""
	for _, p := range pairs {
		leave := func(why string) { d.left(file, line, "partition "+name+": "+p.key+"="+p.value, why) }
		set := func(field, value string) { fields = append(fields, setting{field, value}) }
		switch key := strings.ToLower(p.key); key {
		case "nodes", "partitionname":
		case "default":
			if strings.EqualFold(p.value, "YES") {
				set("default", "true")
			}
		case "hidden":
			if strings.EqualFold(p.value, "YES") {
				set("hidden", "true")
			}
		case "state":
			if state := strings.ToUpper(p.value); slices.Contains([]string{"DOWN", "DRAIN", "INACTIVE"}, state) {
				set("state", text(state))
			}
		case "maxtime":
			longest = limit(p.value)
			set("maxTime", longest)
		case "defaulttime":
			if !strings.EqualFold(p.value, "NONE") {
				usual = limit(p.value)
				set("defaultTime", usual)
			}
		case "maxnodes":
			if n := atoi(p.value, 0); n > 0 {
				set("maxNodes", strconv.Itoa(n))
			}
		case "prioritytier":
			if n := atoi(p.value, -1); n >= 0 && n <= 65533 {
				set("priorityTier", strconv.Itoa(n))
			}
		case "oversubscribe":
			if value := strings.ToUpper(p.value); value != "NO" {
				set("overSubscribe", text(value))
			}
		case "preemptmode":
			if value := strings.ToLower(p.value); slices.Contains([]string{"off", "requeue", "suspend", "cancel"}, value) {
				set("preemptMode", text(value))
			} else {
				leave("a site takes off, requeue, suspend or cancel")
			}
		case "qos":
			d.qos[p.value] = true
			set("qos", text(p.value))
		case "allowaccounts":
			if names := d.named(p.value, d.accounts); names != "" {
				set("allowAccounts", names)
			}
		case "allowqos":
			if names := d.named(p.value, d.qos); names != "" {
				set("allowQOS", names)
			}
		default:
			leave("a site's partition has no such setting")
		}
	}
	if usual == "" && under(longest, "1:00:00") { // the schema's default, which must not be above maxTime
		fields = append(fields, setting{"defaultTime", longest})
	}
	return fields
}

// named notes the names in a list, of accounts or QOS, folded as slurmdbd folds them; "" for ALL.
func (d *Draft) named(list string, known map[string]bool) string {
	if strings.EqualFold(list, "ALL") {
		return ""
	}
	var names []string
	for _, name := range strings.Split(strings.ToLower(list), ",") {
		if name != "root" && name != "normal" {
			known[name] = true
		}
		names = append(names, name)
	}
	return texts(names)
}

// limit is a time limit as a site takes it.
func limit(value string) string {
	if strings.EqualFold(value, "UNLIMITED") || strings.EqualFold(value, "INFINITE") || value == "-1" {
		return text("UNLIMITED")
	}
	return text(value)
}

// under reports whether a limit, as CUE, is shorter than another time.
func under(limit, other string) bool {
	short, err := slurmconf.ParseTime(strings.Trim(limit, `"`))
	long, errLong := slurmconf.ParseTime(other)
	return err == nil && errLong == nil && short.Duration() < long.Duration()
}
