{# SPDX-License-Identifier: Apache-2.0 #}
{# Spack's own module file for environment-modules, which gives back what a CANN in the user's shell #}
{# had set; before 5.1 they cannot. #}
{% extends "modules/modulefile.tcl" %}
{% block environment %}
if {![llength [info commands pushenv]]} { proc pushenv {name value} { setenv $name $value } }
{{ super() | replace('setenv ASCEND_', 'pushenv ASCEND_') }}
{% endblock %}
