"""A Kubernetes cluster of etcd, the API server and one node. The node runs a pod as local processes in a root folder.

A pod's image is this machine's files, with Spark in /opt/spark and this Python as `python3`. Pods have addresses of
the loopback device.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

from testbed.spark_cluster import LOOPBACK, SPARK, free_port, server_process

KUBERNETES, ETCD = "1.37.2", "3.7.0"
SERVERS = Path.home() / ".cache" / "kafkagroup" / f"kubernetes-{KUBERNETES}"
ROOT = Path(__file__).parents[1]
_PACKAGES = {"apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"}
_TOKEN = "administrator"  # noqa: S105 - of a cluster that lives for a test
# The script that Spark's image would run with the arguments of a container.
_ENTRYPOINT = """
role=$1 && shift && cd /opt/spark/work-dir
case $role in
driver)
  exec /opt/spark/bin/spark-submit --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \\
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@" ;;
executor)
  exec java "-Xmx$SPARK_EXECUTOR_MEMORY" $(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p') -cp "/opt/spark/jars/*" \\
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url "$SPARK_DRIVER_URL" \\
    --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \\
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \\
    --podName "$SPARK_EXECUTOR_POD_NAME" ;;
esac
"""


def reason_against_kubernetes() -> str | None:
    """Return why this machine cannot run Kubernetes; None: it can."""
    if os.geteuid() != 0:
        return "pods need root"
    return None if shutil.which("go") or SERVERS.exists() else "Go builds the API server, and is not installed"


def build_servers() -> None:
    """Build etcd and the API server, unless they are built. The build takes minutes."""
    if SERVERS.exists():
        return
    folder = SERVERS.with_suffix(".build")
    folder.mkdir(parents=True, exist_ok=True)

    def go(*arguments: str) -> str:
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        done = subprocess.run(["go", *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    (folder / "go.mod").write_text("module servers\n")
    module = json.loads(go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"))
    # The go.mod of Kubernetes replaces its parts by folders of its repository. Replace them by published versions.
    parts = [one["Old"]["Path"] for one in json.loads(go("mod", "edit", "-json", module["GoMod"]))["Replace"]]
    replaced = [f"-replace={part}={part}@v0{KUBERNETES[1:]}" for part in parts]
    required = [f"-require=k8s.io/kubernetes@v{KUBERNETES}", f"-require=go.etcd.io/etcd/server/v3@v{ETCD}"]
    go("mod", "edit", *required, *replaced)
    for name, package in _PACKAGES.items():
        go("build", "-trimpath", "-ldflags=-s -w", "-o", f"bin/{name}", package)
    (folder / "bin").rename(SERVERS)


class KubernetesCluster:
    """A cluster with one node; use it in a with statement, as root.

    Args:
        folder: The folder for the servers' files, and for `pods`, with the roots and logs of the pods.

    Attributes:
        address: The API server's address.
        inner_address: The API server's address for pods.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.address = f"https://{LOOPBACK}:{self._port}"
        self.inner_address = f"https://kubernetes.default.svc:{self._port}"
        self._ended = threading.Event()
        self._pods: dict[str, tuple[subprocess.Popen[bytes], ExitStack]] = {}
        self._addresses = (f"127.{os.getpid() % 250 + 1}.0.{number}" for number in itertools.count(1))

    def __enter__(self) -> KubernetesCluster:
        build_servers()
        (self._folder / "pods").mkdir()
        self._hosts.touch()
        (self._folder / "tokens.csv").write_text(f"{_TOKEN},admin,admin,system:masters\n")
        key = str(self._folder / "accounts.key")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        clients, peers = (f"http://{LOOPBACK}:{free_port()}" for _ in range(2))
        etcd = {
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "data-dir": self._folder / "etcd",
        }
        api_server = {
            "etcd-servers": clients,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "endpoint-reconciler-type": "none",
            "secure-port": self._port,
            "cert-dir": self._folder,
            "token-auth-file": self._folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
        }
        with ExitStack() as resources:
            for name, flags, ready in (
                ("etcd", etcd, "ready to serve client requests"),
                ("apiserver", api_server, "Serving securely"),
            ):
                command = [str(SERVERS / name), *(f"--{flag}={value}" for flag, value in flags.items())]
                resources.enter_context(server_process(command, self._folder / f"{name}.log", os.environ, ready))
            self._trust = ssl.create_default_context(cafile=str(self.certificate))
            self._await_ready()
            node = threading.Thread(target=self._run_node, name="node")
            node.start()
            resources.callback(self._stop_pods)
            resources.callback(node.join)
            resources.callback(self._ended.set)
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def certificate(self) -> Path:
        """The file with the API server's certificate and its authority's certificate."""
        return self._folder / "apiserver.crt"

    @property
    def _hosts(self) -> Path:
        return self._folder / "hosts"

    @property
    def kubeconfig(self) -> Path:
        """The file with which an administrator's clients connect."""
        cluster = {"server": self.address, "certificate-authority": str(self.certificate)}
        known = {
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
            "current-context": "here",
        }
        path = self._folder / "kubeconfig"
        path.write_text(json.dumps(known))
        return path

    def allow(self, account: str, resources: Sequence[str]) -> None:
        """Create a service account that may do everything with these resources of the namespace `default`."""
        named = {"metadata": {"name": account}}
        self.ask("/api/v1/namespaces/default/serviceaccounts", named)
        rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        self.ask(f"{rights}/roles", {**named, "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["*"]}]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
        self.ask(f"{rights}/rolebindings", {**named, "roleRef": role, "subjects": [subject]})

    def ask(self, path: str, body: Mapping[str, object] | None = None, method: str = "") -> Any:
        """Send a request to the API server as an administrator, and return the answer."""
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            f"{self.address}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {_TOKEN}", "Content-Type": kind},
            method=method or ("GET" if body is None else "POST"),
        )
        with urllib.request.urlopen(request, timeout=30, context=self._trust) as answer:
            return json.load(answer)

    def logs(self) -> str:
        """Return the output of all pods."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("pods/*/log")))

    def _await_ready(self) -> None:
        """Wait for the first namespace, and create the objects in it that Kubernetes' controllers would create."""
        for _ in range(100):
            try:
                self.ask("/api/v1/namespaces/default")
                break
            except urllib.error.HTTPError:
                self._ended.wait(0.3)
        self.ask("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        authority = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self.certificate.read_text()}}
        self.ask("/api/v1/namespaces/default/configmaps", authority)

    def _run_node(self) -> None:
        while not self._ended.wait(0.3):
            pods = self.ask("/api/v1/pods")["items"]
            for pod in pods:
                try:
                    self._step(pod)
                except urllib.error.HTTPError as error:
                    # Spark has deleted or changed the pod, or has not created a mounted object of the pod yet.
                    if error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                        raise
            # Write the file in place, because it is mounted.
            self._hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{line}\n" for line in self._names(pods)))

    def _stop_pods(self) -> None:
        for _, resources in self._pods.values():
            resources.close()

    def _names(self, pods: list[Any]) -> Iterator[str]:
        yield f"{LOOPBACK} kubernetes.default.svc"
        for pod in pods:
            if "podIP" in pod["status"]:
                yield f"{pod['status']['podIP']} {pod['metadata']['name']}"
        for service in self.ask("/api/v1/services")["items"]:
            chosen = service["spec"].get("selector", {}).items()
            name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
            for pod in pods:
                if chosen and chosen <= pod["metadata"]["labels"].items() and "podIP" in pod["status"]:
                    yield f"{pod['status']['podIP']} {name}.{namespace}.svc"

    def _step(self, pod: Any) -> None:
        """Start a pod if it is new, stop a pod that is to be deleted, and report the end of a pod that has ended."""
        name, phase = pod["metadata"]["name"], pod["status"]["phase"]
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}"
        if "deletionTimestamp" in pod["metadata"]:
            if name in self._pods:
                self._pods.pop(name)[1].close()
            self.ask(path, {"gracePeriodSeconds": 0}, "DELETE")
        elif phase == "Pending" and name not in self._pods:
            pod["status"]["podIP"] = address = next(self._addresses)
            self._start(pod)
            self._report(path, "Running", {"running": {}}, podIP=address, podIPs=[{"ip": address}])
        elif phase == "Running" and (code := self._pods[name][0].poll()) is not None:
            self._report(path, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code}})

    def _report(self, path: str, phase: str, state: Mapping[str, object], **more: object) -> None:
        pod = self.ask(path)
        if "nodeName" not in pod["spec"]:
            bound = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": "node"}}
            self.ask(f"{path}/binding", bound)
        (container,) = pod["spec"]["containers"]
        reported = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        ready = phase == "Running"
        statuses = [{**reported, "ready": ready, "started": ready, "state": state}]
        self.ask(f"{path}/status", {"status": {"phase": phase, "containerStatuses": statuses, **more}}, "PATCH")

    def _start(self, pod: Any) -> None:
        """Run the only container of a pod. Its root shows this machine's files, with the pod's own files on top."""
        (container,) = pod["spec"]["containers"]
        folder = self._folder / "pods" / pod["metadata"]["name"]
        upper = folder / "upper"
        for made in ("upper/opt/spark/work-dir", "upper/etc", "work", "root"):
            (folder / made).mkdir(parents=True, exist_ok=True)
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        for mount in container["volumeMounts"]:
            at = upper / mount["mountPath"].lstrip("/").replace("var/run/", "run/")
            at.mkdir(parents=True, exist_ok=True)
            for file, content in self._files(pod, volumes[mount["name"]]):
                (at / file).write_text(content)
        for name in ("bin", "jars", "python"):
            (upper / "opt" / "spark" / name).symlink_to(SPARK / name)
        # The program of the Spark application. A real image would contain this file.
        shutil.copy(ROOT / "tests" / "apps" / "recipe_app.py", upper / "opt" / "spark" / "work-dir" / "job.py")
        script = (
            'hostname "$0" && '
            'mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root" && '
            'for at in proc dev sys; do mount --rbind "/$at" "$1/root/$at"; done && '
            'mount --bind "$2" "$1/root/etc/hosts" && exec chroot "$1/root" sh -c "$3" "$@"'
        )
        command = ["unshare", "--mount", "--uts", "sh", "-ec", script, pod["metadata"]["name"]]
        command += [str(folder), str(self._hosts), f"shift 2; {_ENTRYPOINT}", *container["args"]]
        resources = ExitStack()
        environment = dict(self._variables(pod, container))
        running = resources.enter_context(server_process(command, folder / "log", environment))
        self._pods[pod["metadata"]["name"]] = running, resources

    def _variables(self, pod: Any, container: Any) -> Iterator[tuple[str, str]]:
        yield "PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        yield from {
            "SPARK_HOME": "/opt/spark",
            "SPARK_LOCAL_IP": pod["status"]["podIP"],
            "PYTHONPATH": str(ROOT),
        }.items()
        for one in container["env"]:
            if (source := one.get("valueFrom")) is None:
                yield one["name"], one.get("value", "")
            else:
                value = pod
                for part in source["fieldRef"]["fieldPath"].split("."):
                    value = value[part]
                yield one["name"], value

    def _files(self, pod: Any, volume: Any) -> Iterator[tuple[str, str]]:
        of = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        for source in volume.get("projected", {"sources": [volume]})["sources"]:
            if asked := source.get("serviceAccountToken"):
                account = f"{of}/serviceaccounts/{pod['spec']['serviceAccountName']}/token"
                yield asked["path"], self.ask(account, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
            elif settings := source.get("configMap"):
                yield from self.ask(f"{of}/configmaps/{settings['name']}")["data"].items()
            elif secret := source.get("secret"):
                for name, value in self.ask(f"{of}/secrets/{secret['secretName']}")["data"].items():
                    yield name, base64.b64decode(value).decode()
            elif "downwardAPI" in source:
                yield "namespace", pod["metadata"]["namespace"]
