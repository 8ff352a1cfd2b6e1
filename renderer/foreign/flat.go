package foreign

import (
	"fmt"
	"strconv"
	"strings"
)

// Flat drafts a site from flat Helm values as charts named slurm-platform have them: gpu, monitoring, storage.nfsServer, and pools as
// a map or as a list with names.
func Flat(file, site, url string) (*Draft, error) {
	v, err := readValues(file)
	if err != nil {
		return nil, err
	}
	d := newDraft()
	d.cluster = v.any("clusterName", "cluster.name", "slurm.clusterName").text()
	d.lan = v.any("network.lan", "lan").text()
	d.flatStorage(v)
	if v.any("monitoring.enabled", "prometheus.enabled", "monitoring").on() {
		d.site = append(d.site, setting{"monitoring.enabled", "true"})
	}
	if n, is := v.any("login.replicas").number(); is && n >= 1 && n <= 20 {
		d.site = append(d.site, setting{"login.replicas", strconv.Itoa(n)})
	}
	if port, is := v.any("login.nodePort", "login.service.nodePort").number(); is && port >= 30000 && port <= 32767 {
		d.site = append(d.site, setting{"login.nodePort", strconv.Itoa(port)})
	}
	names, parts := v.any("pools", "workers", "nodePools").members()
	for i, part := range parts {
		if names[i] == "" {
			return nil, fmt.Errorf("%s:%d: %s: has no name", part.file, part.line(), part.path)
		}
		if part.at("enabled").text() == "false" {
			part.whole()
			continue
		}
		if err := d.flatPool(v, free(poolName(names[i]), d.pools), part); err != nil {
			return nil, err
		}
	}
	d.leftovers(v)
	return d, d.finish(site, url)
}

func (d *Draft) flatStorage(v values) {
	server := v.any("storage.nfsServer", "storage.nfs.server", "nfs.server", "nfsServer").text()
	path := strings.TrimRight(v.any("storage.nfsPath", "storage.nfs.path", "nfs.path", "nfsPath").text(), "/")
	if server != "" {
		if path == "" {
			path = "/srv/berth"
			d.assume("storage.nfs.path", "the directory that the file server exports")
		}
		d.site = append(d.site, setting{"storage.nfs", "{server: " + text(server) + ", path: " + text(path) + ", allowedCIDRs: " + ranges + "}"})
		d.assume("storage.nfs.allowedCIDRs", "what the export lets in")
	}
	if class := v.any("storage.storageClass", "storage.storageClassName", "storage.className").text(); class != "" {
		d.site = append(d.site, setting{"storage.class", text(class)})
	}
	for field, keys := range map[string][]string{"home": {"storage.homeSize", "storage.home.size"}, "shared": {"storage.sharedSize", "storage.shared.size"}} {
		part := v.any(keys...)
		if mib, err := part.quantity(1 << 20); err != nil {
			d.left(part.file, part.line(), part.path, err.Error())
		} else if mib > 0 {
			d.site = append(d.site, setting{"storage." + field, size(mib)})
		}
	}
}

// flatPool makes a pool; what it does not say of its cards, the file's gpu part may.
func (d *Draft) flatPool(v values, name string, part values) error {
	p := &pool{max: 1}
	gpu := v.at("gpu")
	if n, is := part.any("max", "maxReplicas", "maxNodes", "replicas", "count").number(); is && n >= 1 && n <= 9999 {
		p.max = n
	} else {
		d.assume("pools."+name+".max", "how many workers there can be")
	}
	if n, is := part.any("min", "minReplicas", "minNodes").number(); is && n > 0 && n <= p.max {
		p.fields = append(p.fields, setting{"min", strconv.Itoa(n)})
	}
	cpus, err := part.any("cpus", "cpu", "resources.limits.cpu", "resources.requests.cpu").quantity(1)
	if err != nil {
		return err
	}
	if p.mib, err = part.any("memory", "mem", "resources.limits.memory", "resources.requests.memory").quantity(1 << 20); err != nil {
		return err
	}
	p.cpus = int(cpus)
	if p.cpus < 1 || p.mib < 1 {
		p.cpus, p.mib = max(p.cpus, 1), max(p.mib, 2048)
		d.assume("pools."+name, "the size of a worker: the values do not say")
	}
	gpus, err := part.any("gpus", "gpu.count", "gpuCount", "resources.limits.nvidia.com/gpu", "gpu").quantity(1)
	if err != nil {
		return err
	}
	if direct, err := part.at("resources", "limits", "nvidia.com/gpu").quantity(1); err == nil && direct > 0 {
		gpus = direct
	}
	if p.gpus = int(gpus); gpu.at("enabled").text() == "false" && p.gpus > 0 {
		d.left(part.file, part.line(), part.path, "it asks for cards although gpu.enabled is false; the cards are kept")
	}
	model := ""
	if p.gpus > 0 {
		if model = part.any("gpuModel", "gpu.model", "gpu.type", "gpuType", "model").text(); model == "" {
			model = gpu.any("model", "type").text()
		}
		if model == "" {
			d.assume("hosts.*.gpus.model", "the model of the cards of pool "+name)
		}
		d.flatSharing(gpu, part, name, p)
	}
	d.scheduling(part, p)
	d.environment(part.at("env"), p)
	d.image(part.at("image"), name)
	if list := featureList(part.at("features").joined()); len(list) > 0 {
		p.fields = append(p.fields, setting{"features", texts(list)})
	}
	if partition := part.at("partition"); partition.text() != "" && partition.text() != name {
		d.overPools(part.file, partition.line(), partition.text(), []string{name}, nil)
	} else {
		p.partition = d.partitionFields(part.file, partition.line(), name, partition.asPairs())
	}
	d.machines(name, p, cardModel(model))
	d.pools[name] = p
	return nil
}

// flatSharing reads how a card is shared: for all pools with cards, or for this one.
func (d *Draft) flatSharing(gpu, part values, name string, p *pool) {
	on := part.any("mps.enabled", "mps").on() || gpu.any("mps.enabled", "mps").on()
	share, given := part.any("mps.share", "mps.percent", "mpsShare").number()
	if !given {
		share, given = gpu.any("mps.share", "mps.percent", "mpsShare").number()
	}
	switch {
	case !on && !given:
	case p.gpus > 1:
		d.left(part.file, part.line(), part.path+".mps", fmt.Sprintf("a worker that shares its card by MPS owns exactly one, and these have %d", p.gpus))
	default:
		if !given || share < 1 || 100%share != 0 {
			share = 25
			d.assume("pools."+name+".sharing.mps.share", "percent of a card in one share; it must divide 100")
		}
		p.fields = append(p.fields, setting{"sharing.mps.share", strconv.Itoa(share)})
	}
}
