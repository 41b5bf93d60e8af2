"""jaxide: a Rust-accelerated tracer for JAX."""

from importlib.metadata import version as _version

from jaxide import _compat as _compat
from jaxide._api.cache import CacheInfo as CacheInfo
from jaxide._api.cache import CallableInfo as CallableInfo
from jaxide._api.cache import cache_info as cache_info
from jaxide._api.cache import clear_caches as clear_caches
from jaxide._api.install import accelerated as accelerated
from jaxide._api.install import install as install
from jaxide._api.install import uninstall as uninstall
from jaxide._api.install import use_environment as _use_environment
from jaxide._api.install import use_native_environment as _use_native_environment
from jaxide._api.make_jaxpr import from_jaxpr as from_jaxpr
from jaxide._api.make_jaxpr import make_jaxpr as make_jaxpr
from jaxide._api.make_jaxpr import structural_hash as structural_hash
from jaxide._api.make_jaxpr import trace as trace
from jaxide._api.run import RunReport as RunReport
from jaxide._api.run import report_run as report_run
from jaxide._api.settings import Settings as Settings
from jaxide._api.settings import SettingValue as SettingValue
from jaxide._api.settings import settings as settings
from jaxide._api.status import CapabilityStatus as CapabilityStatus
from jaxide._api.status import Status as Status
from jaxide._api.status import status as status
from jaxide._api.warm import StoreError as StoreError
from jaxide._api.warm import StoreInfo as StoreInfo
from jaxide._compat import JaxideFallbackWarning as JaxideFallbackWarning
from jaxide._jit.explanation import Change as Change
from jaxide._jit.explanation import Explanation as Explanation
from jaxide._jit.explanation import Retrace as Retrace
from jaxide._jit.explanation import Retraces as Retraces
from jaxide._jit.intercept import Counts as Counts
from jaxide._jit.jit import jit as jit
from jaxide._jit.retraces import explain as explain
from jaxide._jit.retraces import retraces as retraces
from jaxide._native.storage import StorageError as StorageError
from jaxide._program.distributed import ProgramMismatchError as ProgramMismatchError
from jaxide._program.distributed import assert_same_program as assert_same_program
from jaxide._program.passes import PASSES as PASSES
from jaxide._program.program import Program as Program
from jaxide._program.program import load as load
from jaxide._reports.audit import AuditReport as AuditReport
from jaxide._reports.audit import AuditWarning as AuditWarning
from jaxide._reports.audit import Finding as Finding
from jaxide._reports.audit import audit_report as audit_report
from jaxide._reports.audit import clear_audit as clear_audit
from jaxide._reports.cost import Cost as Cost
from jaxide._reports.cost import CostReport as CostReport
from jaxide._reports.cost import Share as Share
from jaxide._reports.diff import Diff as Diff
from jaxide._reports.diff_rows import DiffEquation as DiffEquation
from jaxide._reports.diff_rows import Difference as Difference
from jaxide._reports.diff_rows import DiffRow as DiffRow
from jaxide._reports.diff_rows import ProgramDiff as ProgramDiff
from jaxide._reports.diff_rows import Repeated as Repeated
from jaxide._reports.diff_rows import ScopeDiff as ScopeDiff
from jaxide._reports.diff_stat import DiffStat as DiffStat
from jaxide._reports.equations import Equation as Equation
from jaxide._reports.liveness import LivenessReport as LivenessReport
from jaxide._reports.liveness import LiveValue as LiveValue
from jaxide._reports.queries import Constant as Constant
from jaxide._reports.queries import Conversion as Conversion
from jaxide._reports.queries import CriticalPath as CriticalPath
from jaxide._reports.queries import Dependencies as Dependencies
from jaxide._reports.queries import PrecisionReport as PrecisionReport
from jaxide._reports.queries import Uses as Uses
from jaxide._reports.run import RunFunction as RunFunction
from jaxide._reports.run import RunSpan as RunSpan
from jaxide._reports.run import RunTimes as RunTimes

__version__ = _version("jaxide")

# Looks at the installed jax now, so that what jaxide cannot do is said at import.
_use_environment()
if _compat.native():
    _use_native_environment()
