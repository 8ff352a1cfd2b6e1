package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Pods are held to their namespace's level: the API server itself finds none that breaks it and takes none that would.
func TestPodSecurity(t *testing.T) {
	r := begin(t, 5*time.Minute)
	r.waitJob(r.submit(student, "--partition=gpu-rtx4070 --gres=gpu:1", "sleep 300"), "RUNNING", workerStarts)

	for namespace, level := range map[string]string{platform: "restricted", workers: "baseline"} {
		t.Run(namespace, func(t *testing.T) {
			if got := r.kubectl("get", "namespace", namespace, "-o", `jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}`); got != level {
				t.Errorf("the namespace enforces %q, want %q", got, level)
			}
			// Setting the label anew has the API server check every pod that is there; it warns of each that does not pass.
			for _, label := range []string{"enforce", "warn"} {
				cmd, err := r.box.Kubectl(r.ctx, "label", "namespace", namespace, "--dry-run=server", "--overwrite", "--warnings-as-errors",
					"pod-security.kubernetes.io/"+label+"="+level, "pod-security.kubernetes.io/"+label+"-version=v1.34")
				if err != nil {
					t.Errorf("%s: %v: %s", label, err, cmd)
				}
			}
			for _, p := range r.pods(namespace, "") {
				r := &run{T: t, ctx: r.ctx, box: r.box}
				r.mustBeConfined(p, level)
			}
			privileged := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"e2e-privileged","namespace":%q},"spec":{"containers":[{"name":"x","image":"x","securityContext":{"privileged":true}}]}}`, namespace)
			if err := r.box.Apply(r.ctx, privileged); err == nil {
				r.kubectl("delete", "pod", "-n", namespace, "e2e-privileged", "--wait=false")
				t.Error("a privileged pod was accepted")
			} else if !strings.Contains(err.Error(), "violates PodSecurity") {
				t.Errorf("a privileged pod was refused for another reason: %v", err)
			}
		})
	}
}

// What slurmd and sshd need of root's powers (the chart gives the reason beside each); all other containers have none.
var granted = map[string][]string{
	"slurmd": {"CHOWN", "SETUID", "SETGID", "KILL", "FOWNER"},
	"sshd":   {"SETUID", "SETGID", "SYS_CHROOT", "CHOWN", "FOWNER", "AUDIT_WRITE"},
}

// mustBeConfined checks what the levels leave open: no host namespaces or paths, no privilege, every capability dropped
// but those granted.
func (r *run) mustBeConfined(p pod, level string) {
	r.Helper()
	name := p.Metadata.Name
	if p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.HostIPC {
		r.Errorf("%s shares a namespace of its host", name)
	}
	for _, v := range p.Spec.Volumes {
		if v.HostPath != nil {
			r.Errorf("%s mounts its host's %s", name, v.HostPath.Path)
		}
	}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		s := c.SecurityContext
		if s.Privileged != nil && *s.Privileged {
			r.Errorf("%s: container %s is privileged", name, c.Name)
		}
		if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
			r.Errorf("%s: container %s may gain privileges", name, c.Name)
		}
		if !slices.Contains(s.Capabilities.Drop, "ALL") {
			r.Errorf("%s: container %s keeps the default capabilities", name, c.Name)
		}
		for _, added := range s.Capabilities.Add {
			if level == "restricted" || !slices.Contains(granted[c.Name], added) {
				r.Errorf("%s: container %s has capability %s", name, c.Name, added)
			}
		}
	}
}

// The database's password and the key of Slurm's tokens are out of the workers' reach: they are not in their namespace,
// no pod there holds a token of the API, and its service account could not read them.
func TestSecretsApart(t *testing.T) {
	r := begin(t, 5*time.Minute)
	r.waitJob(r.submit(student, "--partition=cpu", "sleep 300"), "RUNNING", workerStarts)

	foreign := []string{"slurm-database", "slurm-jwt-key"}
	for _, secret := range foreign {
		if out, err := r.box.Kubectl(r.ctx, "get", "secret", "-n", platform, secret, "-o", "name"); err != nil {
			t.Errorf("the platform has no secret %s: %v %s", secret, err, out)
		}
		if out, err := r.box.Kubectl(r.ctx, "get", "secret", "-n", workers, secret, "-o", "name"); err == nil {
			t.Errorf("the workers' namespace has %s", out)
		}
		for _, account := range []string{"default"} {
			out, _ := r.box.Kubectl(r.ctx, "auth", "can-i", "get", "secret/"+secret, "-n", platform, "--as", "system:serviceaccount:"+workers+":"+account)
			if strings.TrimSpace(out) != "no" {
				t.Errorf("service account %s of %s may read %s: %s", account, workers, secret, out)
			}
		}
	}
	for _, p := range r.pods(workers, "") {
		for _, v := range p.Spec.Volumes {
			if v.Secret != nil && slices.Contains(foreign, v.Secret.SecretName) {
				t.Errorf("%s mounts %s", p.Metadata.Name, v.Secret.SecretName)
			}
			if v.Projected == nil {
				continue
			}
			for _, source := range v.Projected.Sources {
				if source.ServiceAccountToken != nil {
					t.Errorf("%s holds a token of the API server", p.Metadata.Name)
				}
			}
		}
	}
	// Jobs run in the slurmd container; the cluster's key there must not be theirs to read.
	id := r.submit(student, "--partition=cpu", `for f in /etc/slurm-keys/auth/slurm.key /var/run/secrets/kubernetes.io/serviceaccount/token; do
  if cat "$f" >/dev/null 2>&1; then echo "reads $f"; fi; done; echo looked`)
	r.waitJob(id, "COMPLETED", workerStarts)
	if out := r.output(id); out != "looked" {
		t.Errorf("a user's job reads what it must not: %s", out)
	}
	if out, err := r.as(student, "cat /etc/slurm-keys/ssh/* /run/sshd-keys/* >/dev/null 2>&1 && echo reads"); err == nil {
		t.Errorf("a user reads the login's host keys: %s", out)
	}
}
