"""jaxide: a Rust-accelerated tracer for JAX."""

from importlib.metadata import version as _version

from jaxide import _compat as _compat
from jaxide._api import from_jaxpr as from_jaxpr
from jaxide._api import make_jaxpr as make_jaxpr
from jaxide._api import structural_hash as structural_hash
from jaxide._api import trace as trace
from jaxide._audit import AuditReport as AuditReport
from jaxide._audit import AuditWarning as AuditWarning
from jaxide._audit import Finding as Finding
from jaxide._audit import audit_every as _audit_every
from jaxide._audit import audit_of_environment as _audit_of_environment
from jaxide._audit import audit_report as audit_report
from jaxide._audit import clear_audit as clear_audit
from jaxide._cache import CacheInfo as CacheInfo
from jaxide._cache import CallableInfo as CallableInfo
from jaxide._cache import cache_info as cache_info
from jaxide._cache import clear_caches as clear_caches
from jaxide._compat import JaxideFallbackWarning as JaxideFallbackWarning
from jaxide._cost import Cost as Cost
from jaxide._cost import CostReport as CostReport
from jaxide._cost import Share as Share
from jaxide._diff import Diff as Diff
from jaxide._diff import Difference as Difference
from jaxide._equations import Equation as Equation
from jaxide._explanation import Change as Change
from jaxide._explanation import Explanation as Explanation
from jaxide._explanation import Retrace as Retrace
from jaxide._explanation import Retraces as Retraces
from jaxide._install import accelerated as accelerated
from jaxide._install import install as install
from jaxide._install import uninstall as uninstall
from jaxide._jit import jit as jit
from jaxide._jits import Counts as Counts
from jaxide._ledger import explain as explain
from jaxide._ledger import retraces as retraces
from jaxide._liveness import LivenessReport as LivenessReport
from jaxide._liveness import LiveValue as LiveValue
from jaxide._passes import PASSES as PASSES
from jaxide._processes import ProgramMismatchError as ProgramMismatchError
from jaxide._processes import assert_same_program as assert_same_program
from jaxide._program import Program as Program
from jaxide._program import load as load
from jaxide._queries import Constant as Constant
from jaxide._queries import Conversion as Conversion
from jaxide._queries import CriticalPath as CriticalPath
from jaxide._queries import Dependencies as Dependencies
from jaxide._queries import PrecisionReport as PrecisionReport
from jaxide._queries import Uses as Uses
from jaxide._storage import StorageError as StorageError

__version__ = _version("jaxide")

# Looks at the installed jax now, so that what jaxide cannot do is said at import.
if _compat.native():
    _audit_every(_audit_of_environment())
